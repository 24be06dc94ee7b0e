package alerts

import (
	"context"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// causes has the causes of alerts about objects, each in a namespace of its own and all at the same time. A cause
// returns its cure. Its LocalService has the name demo.
var causes = map[string]struct {
	labels map[string]string // of the alert
	cause  func(s *scene) (cure func())
}{
	"LocalServiceNotReady":        {map[string]string{"reason": v1alpha1.ReasonWaiting}, keptByFinalizer},
	"LocalServiceNoNodesSelected": {nil, typo},
	"LocalServiceInvalid":         {nil, invalidSpec},
	"LocalServiceConflicted":      {nil, takenName},
	"LocalServiceContested":       {nil, contestedField},
	"LocalServiceNearCapacity":    {nil, manyServices},
	"LocalServiceWritesRefused":   {map[string]string{"resource": "pods", "result": "Invalid"}, refusedLabels},
	"LocalServicePodLabelsLate":   {nil, slowLabels},
	"LocalServiceNodeFanoutSlow":  {nil, slowServices},
}

// everyday creates two apps with a ready pod on each of some nodes.
func (s *scene) everyday() {
	s.T.Helper()
	apps := []string{"cache", "agent"}
	for _, app := range apps {
		s.Create(app)
	}
	s.WaitServiceAccount()
	nodes := s.AddNodes("a", "b", "c", "d", "e", "f")
	for i, node := range nodes {
		for j, app := range apps {
			name := fmt.Sprintf("%s-%d", app, i)
			s.CreatePod(name, node, map[string]string{"app": app})
			s.PatchPod(name, fmt.Sprintf(`{"status": {"phase": "Running", "podIPs": [{"ip": "10.1.%[1]d.%[2]d"}],
				"podIP": "10.1.%[1]d.%[2]d", "conditions": [{"type": "Ready", "status": "True"}]}}`, j, i+1), "status")
		}
	}
	for _, app := range apps {
		s.WaitLocalService(app, "answers on all nodes", func(ls *v1alpha1.LocalService) error {
			return framework.Equal("status.readyNodes", int(ls.Status.ReadyNodes), len(nodes))
		})
	}
}

// keptByFinalizer keeps a Service that is being deleted, so that its successor must wait.
func keptByFinalizer(s *scene) (cure func()) {
	service := "demo-" + s.AddNodes("a")[0]
	s.CreateReady("demo")
	s.EditService(service, func(service *corev1.Service) { service.Finalizers = []string{"example.com/hold"} })
	s.DeleteService(service)
	return func() {
		s.EditService(service, func(service *corev1.Service) { service.Finalizers = nil })
		s.WaitReady("demo")
	}
}

// invalidSpec stores a spec that only a loosened CustomResourceDefinition accepts. The cure is that of the runbook.
func invalidSpec(s *scene) (cure func()) {
	s.AddNodes("a")
	const loosened = `[{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
		"value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]`
	s.MustKubectl("patch", "customresourcedefinition", framework.CRDName, "--type=json", "--patch="+loosened)
	manifest := fmt.Sprintf(`
apiVersion: localservice.dev/v1alpha1
kind: LocalService
metadata: {name: demo, namespace: %[1]s}
spec: {clusterIP: None, selector: {app: demo}, nodeSelector: {%[2]s: %[1]s}, ports: many}
`, s.Namespace, framework.SceneLabel)
	s.Eventually("the spec is stored", func(ctx context.Context) error {
		_, _, err := s.Playground(ctx, []byte(manifest), "kubectl", "create", "-f", "-")
		return err
	})
	return func() {
		s.MustKubectl("replace", "-f", framework.MustModuleFile(s.T, "artifacts", "examples", "crd.yaml"))
		const spec = `{"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}`
		s.MustKubectl("patch", "localservice", "demo", "--type=merge", "--patch="+spec)
		s.WaitReady("demo")
	}
}

// typo changes a nodeSelector so that it matches no node any more.
func typo(s *scene) (cure func()) {
	s.AddNodes("a")
	s.CreateReady("demo")
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "sdd" })
	return func() {
		s.Update("demo", func(ls *v1alpha1.LocalService) { delete(ls.Spec.NodeSelector, "disk") })
		s.WaitReady("demo")
	}
}

// takenName creates a Service of somebody else that has the name.
func takenName(s *scene) (cure func()) {
	taken := "demo-" + s.AddNodes("a", "b")[0]
	s.CreateService(framework.NewForeignService(taken, nil))
	s.Create("demo")
	return func() {
		s.DeleteService(taken)
		s.WaitReady("demo")
	}
}

// contestedField creates a policy that sets a field of all Services.
func contestedField(s *scene) (cure func()) {
	s.Mutate(`[JSONPatch{op: "add", path: "/spec/publishNotReadyAddresses", value: true}]`,
		func(spec *corev1.ServiceSpec) bool { return spec.PublishNotReadyAddresses })
	s.AddNodes("a", "b")
	s.Create("demo")
	return func() {
		s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
		s.WaitReady("demo")
	}
}

// manyServices requests more Services with a cluster IP than pods of a namespace can handle. The cure does not wait for
// all of them to be replaced, four at a time.
func manyServices(s *scene) (cure func()) {
	s.AddManyNodes(1001)
	s.Create("demo", framework.WithClusterIP)
	return func() {
		s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = corev1.ClusterIPNone })
		s.WaitLocalService("demo", "is not near capacity", func(ls *v1alpha1.LocalService) error {
			return framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionFalse,
				v1alpha1.ReasonEnoughCapacity)
		})
	}
}

// refusedLabels makes a policy forbid the node label, while pods are created one after the other, as in a rollout.
func refusedLabels(s *scene) (cure func()) {
	allow := s.Deny("pods", "UPDATE", "!('vm/rack' in object.metadata.?labels.orValue({}))")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	s.WaitServiceAccount()
	ctx, stop := context.WithCancel(s.Ctx())
	var rollout sync.WaitGroup
	rollout.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			pod := framework.NewPod(fmt.Sprintf("pod-%d", i), node, map[string]string{"app": "demo"})
			if _, err := s.PodClient().Create(ctx, pod, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
				s.T.Errorf("the rollout: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	})
	return func() {
		stop()
		rollout.Wait()
		s.Must(s.PodClient().DeleteCollection(s.Ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		allow()
		s.CreatePod("last", node, map[string]string{"app": "demo"})
		s.WaitLabelled("last", node)
	}
}

// slowLabels makes a webhook delay changes of pods.
func slowLabels(s *scene) (cure func()) {
	node := s.AddNodes("a")[0]
	s.CreateReady("demo")
	fast := s.slow("pods", admissionregistrationv1.Update, 12*time.Second)
	for i := range 6 {
		s.CreatePod(fmt.Sprintf("pod-%d", i), node, map[string]string{"app": "demo"})
	}
	return func() {
		fast()
		s.CreatePod("last", node, map[string]string{"app": "demo"})
		s.WaitLabelled("last", node)
	}
}

// slowServices makes a webhook delay new Services of more LocalServices than a namespace has workers, which is three
// quarters of 32: the others get their Services only after the first ones.
func slowServices(s *scene) (cure func()) {
	const localServices = 40
	s.InParallel(localServices, func(i int) error {
		ls := s.NewLocalService(fmt.Sprintf("demo-%d", i))
		_, err := s.LocalServiceClient().Create(s.Ctx(), ls, metav1.CreateOptions{})
		return err
	})
	for i := range localServices {
		s.WaitReady(fmt.Sprintf("demo-%d", i))
	}
	fast := s.slow("services", admissionregistrationv1.Create, 20*time.Second)
	s.AddNodes("a")
	return fast
}

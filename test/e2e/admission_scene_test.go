package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	nodeLabel = v1alpha1.DefaultNodeLabelKey
	// admissionLabels selects all objects of artifacts/admission, as its documentation says.
	admissionLabels = "app.kubernetes.io/name=local-service-controller"
	// admissionKinds are the kinds of artifacts/admission, in the order in which they are best deleted.
	admissionKinds = "mutatingadmissionpolicybindings,mutatingadmissionpolicies," +
		"validatingadmissionpolicybindings,validatingadmissionpolicies"
)

// newAdmissionScene returns a scene in a cluster that no other test uses at the same time: admission policies concern
// the whole cluster. Pods on nodes that do not exist are not deleted there.
func newAdmissionScene(t *testing.T, args ...string) *scene {
	t.Helper()
	cluster := framework.NewCluster(t, framework.ClusterOptions{
		ControlPlaneOnly: true, Args: append(args, "--controllers", "*,-pod-garbage-collector-controller"),
	})
	return &scene{cluster.NewScene(t, "admission")}
}

// as returns a client with another user's permissions.
func (s *scene) as(user string, groups ...string) kubernetes.Interface {
	s.T.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	s.Must(err)
	return client
}

// launchAsDeployed runs the controller with the permissions that artifacts/deploy gives it.
func (s *scene) launchAsDeployed() *framework.Controller {
	s.T.Helper()
	kubeconfig := s.AccountKubeconfig(s.T, controllerNamespace, controllerName)
	controller := s.LaunchController(s.T, "-kubeconfig="+kubeconfig, "-leader-elect=false")
	s.Must(controller.WaitReady(s.Ctx()))
	return controller
}

// barePod returns a pod of the demo app that only the test binds. Only its node's kubelet, if there is one, would run
// it.
func barePod(name, node string, labels map[string]string) *corev1.Pod {
	template := podTemplate()
	maps.Copy(template.Labels, labels)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.NodeName, pod.Spec.SchedulerName = node, "none"
	return pod
}

// wantLabel fails unless a pod has this node label, or none for "".
func (s *scene) wantLabel(pod *corev1.Pod, want string) {
	s.T.Helper()
	if got, has := pod.Labels[nodeLabel]; got != want || has != (want != "") {
		s.T.Errorf("pod %s, with the node %q, has the labels %v; want the node label %q",
			pod.Name, pod.Spec.NodeName, pod.Labels, want)
	}
}

func labelPatch(key, value string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
}

// installPolicies follows the documentation, and waits until all policies work.
func (s *scene) installPolicies() {
	s.T.Helper()
	s.MustKubectl("apply", "--validate=strict", "-k", framework.ModuleFile("artifacts", "admission"))
	s.waitPolicies(nodeLabel, probed{true, true, true, true})
}

// changePolicies applies artifacts/admission with a text replaced, as its documentation says to.
func (s *scene) changePolicies(before, after string) {
	s.T.Helper()
	for _, name := range []string{"node-label.yaml", "node-label-guard.yaml"} {
		manifests, err := os.ReadFile(framework.ModuleFile("artifacts", "admission", name))
		s.Must(err)
		changed := strings.ReplaceAll(string(manifests), before, after)
		_, _, err = s.Playground(s.Ctx(), []byte(changed), "kubectl", "apply", "--validate=strict", "-f", "-")
		s.Must(err)
	}
}

// waitPolicies waits until exactly these policies work, for a node label.
func (s *scene) waitPolicies(key string, want probed) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("the policies that work are %+v", want), func(ctx context.Context) error {
		p, err := s.probe(ctx, key)
		if err == nil && p != want {
			err = fmt.Errorf("they are %+v", p)
		}
		return err
	})
}

// probed holds which policies work.
type probed struct{ atBinding, atCreation, guard, workloads bool }

// probe finds out which policies work. It writes in a namespace of its own, about a node that does not exist.
func (s *scene) probe(ctx context.Context, key string) (p probed, err error) {
	const namespace, node = "default", "probe"
	pods := s.Kube.CoreV1().Pods(namespace)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	created, err := pods.Create(ctx, barePod("probe", node, nil), dry)
	if err != nil {
		return p, err
	}
	p.atCreation = created.Labels[key] == node
	selecting := &corev1.ReplicationController{ObjectMeta: created.ObjectMeta}
	selecting.Spec.Selector, selecting.Spec.Template = created.Labels, &corev1.PodTemplateSpec{Spec: created.Spec}
	selecting.Spec.Template.Labels = created.Labels
	_, err = s.Kube.CoreV1().ReplicationControllers(namespace).Create(ctx, selecting, dry)
	p.workloads = apierrors.IsInvalid(err)
	pod := barePod("", "", nil)
	pod.GenerateName = "probe-"
	if pod, err = pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return p, err
	}
	defer func() {
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		err = errors.Join(err, pods.Delete(context.WithoutCancel(ctx), pod.Name, now))
	}()
	if err := pods.Bind(ctx, framework.NewBinding(pod.Name, node, nil), metav1.CreateOptions{}); err != nil {
		return p, err
	}
	bound, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return p, err
	}
	p.atBinding = bound.Labels[key] == node
	lie, dryPatch := labelPatch(key, "false"), metav1.PatchOptions{DryRun: dry.DryRun}
	_, err = pods.Patch(ctx, pod.Name, types.MergePatchType, lie, dryPatch)
	if apierrors.IsForbidden(err) {
		p.guard, err = true, nil
	}
	return p, err
}

// podWatch records what a watch has shown of the pods of a namespace.
type podWatch struct {
	mu    sync.Mutex
	pods  map[string]*corev1.Pod // with a node, by name, also those that are gone
	wrong []string               // what should not have been seen
}

// watchPods watches all pods of the scene until the end of the test.
func (s *scene) watchPods() *podWatch {
	s.T.Helper()
	w, err := s.PodClient().Watch(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	seen := &podWatch{pods: map[string]*corev1.Pod{}}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range w.ResultChan() {
			seen.see(e)
		}
		seen.see(watch.Event{}) // The test has checked what was seen, unless the server has ended the watch.
	})
	s.T.Cleanup(func() { w.Stop(); watching.Wait() })
	return seen
}

func (w *podWatch) see(e watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong := func(format string, args ...any) { w.wrong = append(w.wrong, fmt.Sprintf(format, args...)) }
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		wrong("the end of the watch: %+v", e)
		return
	}
	isTemplates := pod.Spec.NodeName == "" && metav1.GetControllerOf(pod) != nil // It is corrected at binding.
	if pod.Labels[nodeLabel] != pod.Spec.NodeName && !isTemplates {
		wrong("%s %s: node %q, labels %v", e.Type, pod.Name, pod.Spec.NodeName, pod.Labels)
	}
	if pod.Spec.NodeName == "" {
		return
	}
	// A kubelet that treated our label as a difference would recreate the mirror of a static pod for ever.
	if before := w.pods[pod.Name]; before != nil && before.UID != pod.UID {
		wrong("%s %s: another pod of that name, with the labels %v", e.Type, pod.Name, pod.Labels)
	}
	w.pods[pod.Name] = pod
}

// count returns how many pods have been seen with a node.
func (w *podWatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pods)
}

// check fails if any pod was seen with a node but not its label, or with a label but not that node, or was replaced.
func (w *podWatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) > 0 {
		t.Errorf("seen, %d in all:\n%s", len(w.wrong), strings.Join(w.wrong[:min(len(w.wrong), 10)], "\n"))
	}
}

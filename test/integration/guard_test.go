package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// attempt is a request that somebody may make. Its body is an object, or a patch as a text.
type attempt struct {
	verb, path string
	body       any
}

// try makes a dry run of it, which changes nothing.
func (a *attempt) try(ctx context.Context, with kubernetes.Interface) error {
	request := with.CoreV1().RESTClient().Verb(a.verb).AbsPath(a.path).Param("dryRun", metav1.DryRunAll)
	switch body := a.body.(type) {
	case runtime.Object:
		request.Body(body)
	case string:
		patch := types.MergePatchType
		if strings.Contains(a.path, "/pods/") { // It merges lists of containers by their names.
			patch = types.StrategicMergePatchType
		}
		request.SetHeader("Content-Type", string(patch)).Body([]byte(body))
	}
	return request.Do(ctx).Error()
}

// in returns the path of the objects in a namespace of the core API.
func in(namespace string) string { return "/api/v1/namespaces/" + namespace }

// attack describes what somebody does who has stolen the controller's token.
type attack struct {
	what string
	// policy ends the name of the policy that refuses it.
	policy string
	attempt
}

// TestStolenToken tries what the roles in artifacts/deploy permit and no controller does, with the token of the
// controller's account: without the guard, each attack succeeds; with the guard, the API server refuses it. An
// administrator may do the same, so that nothing else is the reason. The controller works all the time.
func TestStolenToken(t *testing.T) {
	t.Parallel()
	options := publisher()
	options.WithoutGuard = true
	cluster := framework.NewCluster(t, options)
	cluster.NewController(t)
	s := newScene(t, cluster, "stolen")
	token, err := clientcmd.BuildConfigFromFlags("", cluster.MustControllerKubeconfig(t))
	s.Must(err)
	token.QPS, token.WarningHandler = -1, rest.NoWarnings{}
	thief, err := kubernetes.NewForConfig(token)
	s.Must(err)
	attacks := slices.Concat(s.attacksOnPods(), s.attacksOnServices(), s.attacksOnSlices())
	if len(attacks) < 80 {
		t.Errorf("there are only %d attacks", len(attacks))
	}
	for _, attack := range attacks {
		if err := attack.try(s.Ctx(), thief); err != nil {
			t.Errorf("%s: it is refused without the guard, too: %v", attack.what, err)
		}
	}
	s.Must(cluster.InstallGuard(s.Ctx()))
	for _, attack := range attacks {
		err := attack.try(s.Ctx(), thief)
		if policy := "local-service-controller-guard-" + attack.policy; err == nil {
			t.Errorf("%s: it is not refused", attack.what)
		} else if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'"+policy+"'") {
			t.Errorf("%s: not %s refuses it: %v", attack.what, policy, err)
		}
		if err := attack.try(s.Ctx(), s.Kube); err != nil {
			t.Errorf("%s: an administrator may not do it: %v", attack.what, err)
		}
	}
	s.work("after")
}

// attacksOnPods makes the pods that they are about.
func (s *scene) attacksOnPods() (attacks []attack) {
	s.T.Helper()
	long := strings.Repeat("x", 60) + ".example.com"
	nodes := s.AddNodes("a", "b", long)
	s.CreatePod("victim", nodes[0], map[string]string{"app": "dns", nodeLabel: nodes[0]}, func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init"}}
	})
	s.CreatePod("unlabelled", nodes[0], map[string]string{"app": "dns"})
	s.CreatePod("waiting", "", map[string]string{"app": "dns"})
	s.CreatePod("long", nodes[2], map[string]string{"app": "dns"})
	patch := func(what, pod, text string) {
		attacks = append(attacks, attack{what, "pods", attempt{"PATCH", in(s.Namespace) + "/pods/" + pod, text}})
	}
	label := func(value string) string { return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, nodeLabel, value) }
	// spec returns the patch of a spec, with tolerations in addition to those that the pod has.
	spec := func(seconds, more, fields string) string {
		return fmt.Sprintf(`{"spec":{"tolerations":[%s
			{"key":%q,"operator":"Exists","effect":"NoExecute","tolerationSeconds":%s},
			{"key":%q,"operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]%s}}`,
			more, corev1.TaintNodeNotReady, seconds, corev1.TaintNodeUnreachable, fields)
	}
	const image = `"containers":[{"name":"app","image":"evil"}]`
	const anyTaint = `{"key":"any","operator":"Exists"},`
	patch("run another image", "victim", `{"spec":{`+image+`}}`)
	patch("run another image, and set the right label", "unlabelled",
		`{"spec":{`+image+`},`+strings.TrimPrefix(label(nodes[0]), "{"))
	patch("run another image, and tolerate a taint", "victim", spec("300", anyTaint, ","+image))
	patch("prepare with another image", "victim", `{"spec":{"initContainers":[{"name":"init","image":"evil"}]}}`)
	patch("end a pod, and tolerate a taint", "victim", spec("300", anyTaint, `,"activeDeadlineSeconds":1`))
	patch("have a pod evicted later", "victim", spec("null", "", ""))
	patch("have a pod evicted sooner", "victim", spec("0", "", ""))
	patch("have a pod evicted sooner for any taint", "victim",
		spec("300", `{"operator":"Exists","effect":"NoExecute","tolerationSeconds":0},`, ""))
	patch("have a pod evicted sooner for the same taint", "victim", spec("300", fmt.Sprintf(
		`{"key":%q,"operator":"Exists","effect":"NoExecute","tolerationSeconds":0},`, corev1.TaintNodeNotReady), ""))
	patch("tolerate more than can be compared", "victim", spec("300", strings.Repeat(anyTaint, 99), ""))
	patch("end a pod", "victim", `{"spec":{"activeDeadlineSeconds":1}}`)
	patch("join another Service", "victim", `{"metadata":{"labels":{"app":"other"}}}`)
	patch("leave a Service", "victim", `{"metadata":{"labels":{"app":null}}}`)
	patch("add a label", "victim", `{"metadata":{"labels":{"team":"other"}}}`)
	patch("add a label, and set the right one", "unlabelled",
		fmt.Sprintf(`{"metadata":{"labels":{%q:%q,"team":"other"}}}`, nodeLabel, nodes[0]))
	patch("annotate", "victim", `{"metadata":{"annotations":{"sidecar.example.com/inject":"true"}}}`)
	patch("keep a pod from being deleted", "victim", `{"metadata":{"finalizers":["example.com/stay"]}}`)
	patch("have a pod deleted", "victim", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap",
		"name":"gone","uid":"gone"}]}}`)
	patch("name a pod's origin", "victim", `{"metadata":{"generateName":"other-"}}`)
	patch("move a pod to another node's name", "victim", label(nodes[1]))
	patch("invent a node", "unlabelled", label("nowhere"))
	patch("take a pod out of its node's Service", "victim", label(""))
	patch("remove the label", "victim", fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, nodeLabel))
	patch("label a pod that has no node", "waiting", label(nodes[0]))
	patch("move a pod on a node with a long name to another one's", "long", label(nodes[0]))
	value := naming.NodeLabelValue(nodes[2])
	patch("move a pod on a node with a long name to another long one's", "long", label("y"+value[1:]))
	patch("cut a long name elsewhere", "long", label(nodes[2][:20]+value[len(value)-11:]))
	return attacks
}

// attacksOnServices makes LocalService demo, and the Services that they are about.
func (s *scene) attacksOnServices() (attacks []attack) {
	s.T.Helper()
	node := s.NodeName("a")
	demo, other := s.CreateReady("demo", framework.WithClusterIP), s.CreateReady("other")
	own := s.GetService("demo-" + node)
	foreign := s.CreateService(framework.NewForeignService("victim", nil))
	s.CreateService(framework.NewForeignService("similar", map[string]string{v1alpha1.OwnerLabelKey: "similar"}))
	refer := func(to metav1.Object, kind, version string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: to.GetName(), UID: to.GetUID(),
			Controller: new(true), BlockOwnerDeletion: new(true)}
	}
	ours := func(ls *v1alpha1.LocalService) metav1.OwnerReference {
		return refer(ls, v1alpha1.Kind, v1alpha1.SchemeGroupVersion.String())
	}
	add := func(what, verb, path string, body any) {
		attacks = append(attacks, attack{what, "services", attempt{verb, path, body}})
	}
	services := in(s.Namespace) + "/services"
	create := func(what string, edit func(*corev1.Service)) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-new", Namespace: s.Namespace,
			Labels: own.Labels, Annotations: own.Annotations, OwnerReferences: slices.Clone(own.OwnerReferences)},
			Spec: corev1.ServiceSpec{Selector: own.Spec.Selector, Ports: own.Spec.Ports}}
		edit(service)
		add(what, "POST", services, service)
	}
	patch := func(what, name, text string) { add(what, "PATCH", services+"/"+name, text) }
	remove := func(what, name string) { add(what, "DELETE", services+"/"+name, nil) }
	controlledBy := func(references ...metav1.OwnerReference) string {
		text, err := json.Marshal(references)
		s.Must(err)
		return `{"metadata":{"ownerReferences":` + string(text) + `}}`
	}

	create("a Service of nobody", func(service *corev1.Service) { service.OwnerReferences = nil })
	create("a Service of something else", func(service *corev1.Service) {
		service.OwnerReferences = []metav1.OwnerReference{refer(foreign, "Deployment", "apps/v1")}
	})
	create("a Service of a LocalService of another group", func(service *corev1.Service) {
		service.OwnerReferences[0].APIVersion = "example.com/v1"
	})
	create("a Service that stays, as the API server does not serve its owner", func(service *corev1.Service) {
		service.OwnerReferences[0].APIVersion = v1alpha1.GroupName + "/v9"
	})
	create("a Service that a LocalService owns, but does not control", func(service *corev1.Service) {
		service.OwnerReferences = []metav1.OwnerReference{ours(demo)}
		service.OwnerReferences[0].Controller = nil
	})
	create("a Service that stays when its LocalService is gone", func(service *corev1.Service) {
		service.OwnerReferences[0].UID = "invented"
		other := refer(foreign, "Service", "v1")
		other.Controller = nil
		service.OwnerReferences = append(service.OwnerReferences, other)
	})
	create("a name that is no LocalService's", func(service *corev1.Service) { service.Name = "database" })
	create("a name that only begins like a LocalService's", func(service *corev1.Service) {
		service.Name = "demonstration"
	})
	create("another host's name", func(service *corev1.Service) {
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	})
	create("the traffic of an address", func(service *corev1.Service) {
		service.Spec.ExternalIPs = []string{"192.0.2.1"}
	})
	create("the address of a load balancer", func(service *corev1.Service) {
		service.Spec.Type, service.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, "192.0.2.1"
	})
	create("a Service that cannot be deleted", func(service *corev1.Service) {
		service.Finalizers = []string{"example.com/stay"}
	})

	patch("redirect somebody's Service", "victim", `{"spec":{"selector":{"app":"evil"}}}`)
	patch("change the ports of somebody's Service", "victim", `{"spec":{"ports":[{"port":1234,"targetPort":4321}]}}`)
	patch("annotate somebody's Service", "victim", `{"metadata":{"annotations":{"a":"b"}}}`)
	patch("write somebody's Service unchanged", "victim", `{}`)
	patch("steal a Service", "victim", controlledBy(ours(demo)))
	patch("steal a Service with our marks", "victim", strings.TrimSuffix(controlledBy(ours(demo)), "}}")+
		fmt.Sprintf(`,"labels":{%q:"demo"}},"spec":{"selector":{%q:%q}}}`, v1alpha1.OwnerLabelKey, nodeLabel, node))
	patch("steal a Service that has the label only", "similar", controlledBy(ours(demo)))
	remove("delete somebody's Service", "victim")
	remove("delete a Service that has the label only", "similar")
	for name, labels := range map[string]map[string]string{
		"marked":    {v1alpha1.OwnerLabelKey: "demo"},
		"other":     {v1alpha1.OwnerLabelKey: "demo", v1alpha1.HostnamesLabelKey: "source"},
		"published": {v1alpha1.OwnerLabelKey: "demo", v1alpha1.HostnamesLabelKey: "published"},
		"node":      {v1alpha1.OwnerLabelKey: "node"},
		"demo-same": {v1alpha1.OwnerLabelKey: "demo", v1alpha1.HostnamesLabelKey: "published"},
	} {
		service := framework.NewForeignService(name, labels)
		if labels[v1alpha1.HostnamesLabelKey] == "" {
			service.Spec.Selector = map[string]string{nodeLabel: node}
		}
		s.CreateService(service)
		remove("delete a Service with our marks that no LocalService can have: "+name, name)
	}
	add("redirect the API server's Service", "PATCH", in(metav1.NamespaceDefault)+"/services/kubernetes",
		`{"spec":{"selector":{"app":"evil"}}}`)
	add("delete the API server's Service", "DELETE", in(metav1.NamespaceDefault)+"/services/kubernetes", nil)

	patch("release a Service", own.Name, controlledBy())
	patch("pass a Service to another LocalService", own.Name, controlledBy(ours(other)))
	patch("keep a Service when its LocalService is gone", own.Name, controlledBy(ours(demo),
		metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: foreign.Name, UID: foreign.UID}))
	patch("pass a Service to something else", own.Name, controlledBy(refer(foreign, "Deployment", "apps/v1")))
	patch("lead a name to another host", own.Name,
		`{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}`)
	patch("take the traffic of an address", own.Name, `{"spec":{"externalIPs":["192.0.2.1"]}}`)
	patch("take the address of a load balancer", own.Name,
		`{"spec":{"type":"LoadBalancer","loadBalancerIP":"192.0.2.1"}}`)
	patch("keep a Service from being deleted", own.Name, `{"metadata":{"finalizers":["example.com/stay"]}}`)
	held := s.GetService("other-" + node)
	held.Finalizers = []string{"example.com/clean-up"}
	_, err := s.Kube.CoreV1().Services(s.Namespace).Update(s.Ctx(), held, metav1.UpdateOptions{})
	s.Must(err)
	s.T.Cleanup(func() { // Or the namespace is never gone.
		_, _ = s.Kube.CoreV1().Services(s.Namespace).Patch(context.Background(), held.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	patch("skip somebody's clean-up of a Service", held.Name, `{"metadata":{"finalizers":null}}`)
	return attacks
}

// attacksOnSlices makes LocalService names, which has mode Hostnames, and the EndpointSlices that they are about.
func (s *scene) attacksOnSlices() (attacks []attack) {
	s.T.Helper()
	node := s.NodeName("a")
	s.Create("names", framework.WithHostnames, func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
	s.run("pod", node, "10.1.0.1")
	own := s.sliceOf("names")
	target := framework.NewForeignService("target", nil)
	target.Spec.Selector = app
	s.CreateService(target)
	foreign := s.sliceOf("target")
	slices := "/apis/discovery.k8s.io/v1/namespaces/" + s.Namespace + "/endpointslices"
	add := func(what, verb, path string, body any) {
		attacks = append(attacks, attack{what, "endpointslices", attempt{verb, path, body}})
	}
	create := func(what string, edit func(*discoveryv1.EndpointSlice)) {
		slice := own.DeepCopy()
		slice.Name, slice.UID, slice.ResourceVersion, slice.GenerateName = "new-named", "", "", ""
		slice.Endpoints[0].Addresses = []string{"192.0.2.1"}
		edit(slice)
		add(what, "POST", slices, slice)
	}
	update := func(what string, of *discoveryv1.EndpointSlice, edit func(*discoveryv1.EndpointSlice)) {
		slice := of.DeepCopy()
		slice.ResourceVersion = ""
		edit(slice)
		add(what, "PUT", slices+"/"+slice.Name, slice)
	}
	remove := func(what, name string) { add(what, "DELETE", slices+"/"+name, nil) }
	manage := func(slice *discoveryv1.EndpointSlice, manager string) {
		slice.Labels[discoveryv1.LabelManagedBy] = manager
	}
	// What the labels of an own one would be, but for somebody else's Service.
	disguise := func(slice *discoveryv1.EndpointSlice) {
		maps.Copy(slice.Labels, own.Labels)
		slice.Labels[discoveryv1.LabelServiceName] = "target"
	}

	create("more addresses for somebody's Service", func(slice *discoveryv1.EndpointSlice) {
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: "target"}
		slice.OwnerReferences = nil
	})
	create("more addresses, in the name of Kubernetes", func(slice *discoveryv1.EndpointSlice) {
		slice.Labels, slice.OwnerReferences = foreign.Labels, foreign.OwnerReferences
	})
	create("more addresses for a Service with an address", func(slice *discoveryv1.EndpointSlice) {
		disguise(slice)
		slice.Labels[v1alpha1.OwnerLabelKey] = "target"
		slice.OwnerReferences = foreign.OwnerReferences
		delete(slice.Labels, corev1.IsHeadlessService)
	})
	create("more addresses that our Service controls", disguise)
	create("more addresses that nobody controls", func(slice *discoveryv1.EndpointSlice) {
		slice.OwnerReferences = nil
	})
	create("more addresses that a pod controls", func(slice *discoveryv1.EndpointSlice) {
		slice.OwnerReferences[0].Kind = "Pod"
	})
	create("an EndpointSlice that cannot be deleted", func(slice *discoveryv1.EndpointSlice) {
		slice.Finalizers = []string{"example.com/stay"}
	})
	create("more addresses that stay when our Service is gone", func(slice *discoveryv1.EndpointSlice) {
		slice.OwnerReferences = append(slice.OwnerReferences, foreign.OwnerReferences...)
		slice.OwnerReferences[1].Controller = nil
	})
	update("redirect somebody's Service", foreign, func(slice *discoveryv1.EndpointSlice) {
		slice.Endpoints[0].Addresses = []string{"192.0.2.1"}
	})
	update("take over an EndpointSlice of Kubernetes", foreign, func(slice *discoveryv1.EndpointSlice) {
		slice.Labels, slice.OwnerReferences = own.Labels, own.OwnerReferences
	})
	update("take over the manager of somebody's Service", foreign, func(slice *discoveryv1.EndpointSlice) {
		manage(slice, v1alpha1.EndpointSliceManager)
	})
	update("pass our addresses to Kubernetes", own, func(slice *discoveryv1.EndpointSlice) {
		manage(slice, plan.KubernetesSliceManager)
	})
	update("pass our addresses to somebody's Service", own, func(slice *discoveryv1.EndpointSlice) { disguise(slice) })
	update("pass our addresses to somebody's Service, with its owner", own, func(slice *discoveryv1.EndpointSlice) {
		disguise(slice)
		slice.Labels[v1alpha1.OwnerLabelKey] = "target"
		slice.OwnerReferences = foreign.OwnerReferences
	})
	update("show our addresses to kube-proxy", own, func(slice *discoveryv1.EndpointSlice) {
		delete(slice.Labels, corev1.IsHeadlessService)
	})
	update("keep an EndpointSlice from being deleted", own, func(slice *discoveryv1.EndpointSlice) {
		slice.Finalizers = []string{"example.com/stay"}
	})
	remove("delete an EndpointSlice of somebody's Service", foreign.Name)
	meshed := own.DeepCopy()
	meshed.Name, meshed.UID, meshed.ResourceVersion = "meshed", "", ""
	manage(meshed, "endpointslice-mesh-controller.cilium.io")
	_, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Create(s.Ctx(), meshed, metav1.CreateOptions{})
	s.Must(err)
	remove("delete what another manager publishes for our Service", meshed.Name)
	return attacks
}

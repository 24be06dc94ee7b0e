package integration

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// theirs is the key of the label and the annotation that somebody else sets on Services.
const theirs = "example.com/theirs"

// randomRuns are the defaults of flags of rapid: each step asks a real API server. A failure is shrunk; to repeat one,
// rapid says with which -rapid.seed.
var randomRuns = map[string]string{"rapid.checks": "4", "rapid.steps": "25", "rapid.nofailfile": "true"}

// editor makes random edits.
type editor struct {
	*rapid.T
	namespace string
}

// IntN is a number below n.
func (e *editor) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(e.T, "choice") }

// pick returns one of some values.
func pick[T any](e *editor, values ...T) T { return values[e.IntN(len(values))] }

// pickPtr returns a pointer to one of some values, or nil.
func pickPtr[T any](e *editor, values ...T) *T {
	if i := e.IntN(len(values) + 1); i < len(values) {
		return &values[i]
	}
	return nil
}

// pickMap returns some of the keys with some of the values, maybe none.
func (e *editor) pickMap(keys, values []string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if e.IntN(2) == 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = pick(e, values...)
	}
	return out
}

// edit changes a few fields of a spec. Some of what comes of that makes no sense, and is for the API server to refuse.
func (e *editor) edit(spec *v1alpha1.LocalServiceSpec) {
	edits := []func(*v1alpha1.LocalServiceSpec){
		e.editType, e.editPorts, e.editPorts, e.editPolicies, e.editAffinity, e.editFamilies, e.editFamilies,
		e.editLoadBalancer, e.editNodeSelector, e.editMetadata, e.editMetadata,
		func(spec *v1alpha1.LocalServiceSpec) {
			spec.Type = pick[corev1.ServiceType](e, "", "ClusterIP", "NodePort", "LoadBalancer")
		},
		func(spec *v1alpha1.LocalServiceSpec) { spec.ClusterIP = pick(e, "", corev1.ClusterIPNone) },
		func(spec *v1alpha1.LocalServiceSpec) {
			spec.Selector = e.pickMap([]string{"app", "tier", "example.com/version"}, []string{"", "1", "web"})
		},
		func(spec *v1alpha1.LocalServiceSpec) { spec.PublishNotReadyAddresses = !spec.PublishNotReadyAddresses },
		func(spec *v1alpha1.LocalServiceSpec) {
			spec.TrafficDistribution = pickPtr(e, "PreferClose", "PreferSameZone", "PreferSameNode")
		},
	}
	for range 1 + e.IntN(3) {
		pick(e, edits...)(spec)
	}
}

// editType chooses another type, and takes away what has no meaning with it.
func (e *editor) editType(spec *v1alpha1.LocalServiceSpec) {
	spec.ClusterIP = ""
	switch spec.Type = pick[corev1.ServiceType](e, "", "", "ClusterIP", "NodePort", "LoadBalancer"); spec.Type {
	case "":
		spec.ClusterIP = corev1.ClusterIPNone
		fallthrough
	case corev1.ServiceTypeClusterIP:
		spec.ExternalTrafficPolicy = ""
		fallthrough
	case corev1.ServiceTypeNodePort:
		spec.LoadBalancerClass, spec.LoadBalancerSourceRanges, spec.AllocateLoadBalancerNodePorts = nil, nil, nil
	}
	if spec.ClusterIP == "" && len(spec.Ports) == 0 {
		spec.Ports = []v1alpha1.ServicePort{{Port: 80}}
	}
}

func (e *editor) editPorts(spec *v1alpha1.LocalServiceSpec) {
	if len(spec.Ports) > 0 && e.IntN(2) == 0 {
		port := &spec.Ports[e.IntN(len(spec.Ports))]
		*port = e.port(port.Name)
		return
	}
	spec.Ports = nil
	for i := range e.IntN(4) {
		spec.Ports = append(spec.Ports, e.port(fmt.Sprint("p", i)))
	}
	spec.Ports = rapid.Permutation(spec.Ports).Draw(e.T, "ports")
}

func (e *editor) port(name string) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{
		Name:        pick(e, name, name, name, "web", ""),
		Protocol:    pick[corev1.Protocol](e, "", "TCP", "UDP", "SCTP"),
		Port:        pick[int32](e, 53, 80, 443, 8080, 65535),
		TargetPort:  pick(e, intstr.IntOrString{}, intstr.FromInt32(8080), intstr.FromInt32(80), intstr.FromString("web")),
		AppProtocol: pickPtr(e, "http", "kubernetes.io/h2c"),
	}
}

func (e *editor) editPolicies(spec *v1alpha1.LocalServiceSpec) {
	spec.InternalTrafficPolicy = pickPtr(e, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	spec.ExternalTrafficPolicy = pick[corev1.ServiceExternalTrafficPolicy](e, "", "Cluster", "Local")
}

func (e *editor) editAffinity(spec *v1alpha1.LocalServiceSpec) {
	spec.SessionAffinity, spec.SessionAffinityConfig = pick[corev1.ServiceAffinity](e, "", "None", "ClientIP", "ClientIP"), nil
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.SessionAffinityConfig = pick(e, nil, &v1alpha1.SessionAffinityConfig{},
			&v1alpha1.SessionAffinityConfig{ClientIP: &v1alpha1.ClientIPConfig{TimeoutSeconds: pickPtr[int32](e, 1, 60, 10800, 86400)}})
	}
}

func (e *editor) editFamilies(spec *v1alpha1.LocalServiceSpec) {
	spec.IPFamilies = pick(e, nil, []corev1.IPFamily{"IPv4"}, []corev1.IPFamily{"IPv6"}, []corev1.IPFamily{"IPv4", "IPv6"}, []corev1.IPFamily{"IPv6", "IPv4"})
	spec.IPFamilyPolicy = pickPtr(e, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
}

func (e *editor) editLoadBalancer(spec *v1alpha1.LocalServiceSpec) {
	spec.LoadBalancerClass = pickPtr(e, "example.com/fast", "example.com/cheap")
	spec.LoadBalancerSourceRanges = pick(e, nil, []string{"192.0.2.0/24"}, []string{"192.0.2.0/24", "2001:db8::/32"})
	spec.AllocateLoadBalancerNodePorts = pickPtr(e, true, false)
	if e.IntN(2) == 0 {
		spec.Type, spec.ClusterIP = corev1.ServiceTypeLoadBalancer, ""
	}
}

func (e *editor) editNodeSelector(spec *v1alpha1.LocalServiceSpec) {
	spec.NodeSelector = pick(e, nil, map[string]string{framework.SceneLabel: e.namespace}, map[string]string{framework.SceneLabel: e.namespace},
		map[string]string{framework.SceneLabel: e.namespace, "disk": "ssd"}, map[string]string{"disk": "hdd"}, map[string]string{"disk": "none"})
}

func (e *editor) editMetadata(spec *v1alpha1.LocalServiceSpec) {
	keys, values := []string{"team", "example.com/tier", "empty"}, []string{"", "a", "b"}
	spec.ServiceMetadata = pick(e, nil, &v1alpha1.ServiceMetadata{},
		&v1alpha1.ServiceMetadata{Labels: e.pickMap(keys, values), Annotations: e.pickMap(keys, values)},
		&v1alpha1.ServiceMetadata{Labels: e.pickMap(keys, values)}, &v1alpha1.ServiceMetadata{Annotations: e.pickMap(keys, values)})
}

// TestEveryFieldRandomEdits makes random edits of a LocalService. After each that the API server accepts, the Services are
// as the spec says, by no more writes than that takes; what others have set on them is still there; and the controller has
// nothing more to write, also when it looks at them again.
func TestEveryFieldRandomEdits(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range randomRuns {
		if !given[name] {
			if err := flag.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := newScene(t, framework.NewCluster(t, dualStack(dualStackRanges)), "random")
	s.NewController(t, "-v=4")
	f := s.newFence()
	s.CreateNode(s.NodeName("a"), map[string]string{"disk": "ssd"})
	s.CreateNode(s.NodeName("b"), map[string]string{"disk": "hdd"})
	s.CreateNode(s.NodeName("c"), nil)
	accepted, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r := &randomRun{scene: s, fence: f, rt: rt, others: map[types.UID]string{}, editor: &editor{T: rt, namespace: s.Namespace}}
		r.CreateReady("demo")
		defer func() {
			r.Must(r.LocalServiceClient().Delete(r.Ctx(), "demo", metav1.DeleteOptions{}))
			r.WaitLocalServiceGone("demo")
			r.WaitServiceCount(0)
		}()
		f.passLocalServices()
		rt.Repeat(map[string]func(*rapid.T){"edit": func(*rapid.T) {
			if r.step() {
				accepted++
			} else {
				refused++
			}
		}})
	})
	t.Logf("%d edits were accepted and %d refused", accepted, refused)
	if accepted == 0 {
		t.Error("none of the edits was accepted")
	}
}

// randomRun is a run of TestEveryFieldRandomEdits.
type randomRun struct {
	*scene
	rt     *rapid.T
	editor *editor
	fence  *fence
	// others is what somebody else has set on Services, by their UID.
	others map[types.UID]string
	// touches counts what somebody else does.
	touches int
}

// failf fails the run, which rapid then tries to shrink.
func (r *randomRun) failf(format string, args ...any) {
	r.rt.Helper()
	r.rt.Fatalf("%s\n%s", fmt.Sprintf(format, args...), r.Describe(r.Namespace))
}

// step makes an edit, and checks what becomes of it. It returns false if the API server refuses the edit.
func (r *randomRun) step() (accepted bool) {
	ls, err := r.LocalServiceClient().Get(r.Ctx(), "demo", metav1.GetOptions{})
	r.Must(err)
	old, err := r.OwnedServices(r.Ctx(), ls)
	r.Must(err)
	spec := ls.Spec.DeepCopy()
	for range 10 {
		if r.editor.edit(spec); !apiequality.Semantic.DeepEqual(ls.Spec, *spec) {
			break
		}
	}
	r.ResetCount()
	if err := r.replaceSpec(spec); apierrors.IsInvalid(err) {
		return false
	} else if err != nil {
		r.failf("%v", err)
	}
	ls = r.WaitReady("demo")
	r.fence.passServices()
	r.fence.passLocalServices()
	live, err := r.OwnedServices(r.Ctx(), ls)
	r.Must(err)
	r.checkNames(ls, live)
	r.checkContent(ls, live)
	r.checkWrites(ls, old, live)

	r.ResetCount()
	r.touch(live)
	r.fence.passServices()
	if writes := r.Requests().Writes(); len(writes) > 0 {
		r.failf("at rest, when others had changed what is theirs, the controller wrote: %s", writes)
	}
	return true
}

// replaceSpec writes a spec. An update, not a patch: it takes away what is not in the new spec.
func (r *randomRun) replaceSpec(spec *v1alpha1.LocalServiceSpec) error {
	return framework.RetryConflicts(func() error {
		ls, err := r.LocalServiceClient().Get(r.Ctx(), "demo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ls.Spec = *spec
		_, err = r.LocalServiceClient().Update(r.Ctx(), ls, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	})
}

// checkNames compares the names of Services with the nodes that the LocalService selects.
func (r *randomRun) checkNames(ls *v1alpha1.LocalService, live map[string]*corev1.Service) {
	var want []string
	nodes, err := r.Kube.CoreV1().Nodes().List(r.Ctx(), metav1.ListOptions{LabelSelector: labels.Set.String(ls.Spec.NodeSelector)})
	r.Must(err)
	for i := range nodes.Items {
		want = append(want, naming.ServiceName(ls.Name, nodes.Items[i].Name))
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(live)); !slices.Equal(got, want) {
		r.failf("the LocalService with the spec %+v has the Services %v; want %v", ls.Spec, got, want)
	}
}

// mustBeReplaced reports whether the API does not let a Service become what a spec says.
func mustBeReplaced(old *corev1.Service, spec *v1alpha1.LocalServiceSpec) bool {
	headless := old.Spec.ClusterIP == corev1.ClusterIPNone
	isLoadBalancer := old.Spec.Type == corev1.ServiceTypeLoadBalancer && spec.Type == corev1.ServiceTypeLoadBalancer
	return headless != (spec.ClusterIP == corev1.ClusterIPNone) ||
		len(spec.IPFamilies) > 0 && spec.IPFamilies[0] != old.Spec.IPFamilies[0] ||
		isLoadBalancer && !apiequality.Semantic.DeepEqual(old.Spec.LoadBalancerClass, spec.LoadBalancerClass)
}

// checkWrites compares the controller's writes of Services with what has become of these: each that is new was created,
// each that is gone was deleted, each that is another than it was had one write, and there were no others.
func (r *randomRun) checkWrites(ls *v1alpha1.LocalService, old, live map[string]*corev1.Service) {
	want := map[string]int{"create": 0, "delete": 0, "patch": 0}
	for name, now := range live {
		was := old[name]
		if was != nil && (was.UID != now.UID) != mustBeReplaced(was, &ls.Spec) {
			r.failf("Service %s was replaced: %t. It was %+v; the spec is %+v", name, was.UID != now.UID, was.Spec, ls.Spec)
		}
		switch {
		case was == nil || was.UID != now.UID:
			want["create"]++
		case was.ResourceVersion != now.ResourceVersion:
			want["patch"]++
		}
	}
	for name, was := range old {
		if live[name] == nil || live[name].UID != was.UID {
			want["delete"]++
		}
	}
	got := map[string]int{"create": 0, "delete": 0, "patch": 0}
	writes := r.Requests().Resource("services").Writes()
	for i := range writes {
		got[writes[i].Verb]++
	}
	if !maps.Equal(got, want) || len(writes.Where(framework.Failed)) > 0 {
		r.failf("the controller's writes of services: %s; want %v. The Services before: %+v. The spec: %+v", writes, want, old, ls.Spec)
	}
}

// checkContent compares Services with the spec, and with what others have set on them.
func (r *randomRun) checkContent(ls *v1alpha1.LocalService, live map[string]*corev1.Service) {
	ls = ls.DeepCopy()
	slices.SortFunc(ls.Spec.Ports, func(a, b v1alpha1.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, service := range live {
		service = service.DeepCopy()
		want, found := r.others[service.UID]
		if found && (service.Labels[theirs] != want || service.Annotations[theirs] != want) {
			r.failf("what others had set on Service %s, %s, is not there any more: labels %v, annotations %v",
				service.Name, want, service.Labels, service.Annotations)
		}
		delete(service.Labels, theirs)
		delete(service.Annotations, theirs)
		// The order of ports means nothing, and a second family may have been added to the one that was asked for.
		slices.SortFunc(service.Spec.Ports, func(a, b corev1.ServicePort) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
		})
		if n := len(ls.Spec.IPFamilies); n > 0 && n < len(service.Spec.IPFamilies) {
			service.Spec.IPFamilies = service.Spec.IPFamilies[:n]
		}
		if err := followsError(ls, service, service.Annotations[v1alpha1.NodeAnnotationKey]); err != nil {
			r.failf("%v", err)
		}
	}
}

// touch does what cloud controllers and `kubectl annotate` do to the Services.
func (r *randomRun) touch(live map[string]*corev1.Service) {
	for name, service := range live {
		r.touches++
		value := fmt.Sprint(r.touches)
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, theirs, value, theirs, value)
		_, err := r.ServiceClient().Patch(r.Ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "by-hand"})
		r.Must(err)
		r.others[service.UID] = value
	}
}

// TestEachChangeIsTold tests that each change has an event that says what it was, also when changes of several kinds follow
// each other and leave the LocalService as it is: recorders of events may merge what they take for repetitions.
func TestEachChangeIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "told")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	wantTold := func(what string, created, updated int) {
		t.Helper()
		s.Eventually(what+" is told", func(ctx context.Context) error {
			gotCreated, err1 := s.told(ctx, "demo", "created")
			gotUpdated, err2 := s.told(ctx, "demo", "updated")
			return errors.Join(err1, err2,
				framework.Equal("created Services in events", gotCreated, created),
				framework.Equal("updated Services in events", gotUpdated, updated))
		})
	}
	wantTold("the fan-out", 2, 0)
	edited := s.GetService("demo-" + nodes[0])
	s.EditService(edited.Name, func(service *corev1.Service) { service.Spec.Ports[0].Port = 81 })
	s.waitRepaired(edited)
	f.passServices()
	wantTold("the repair", 2, 1)
	deleted := s.GetService("demo-" + nodes[1])
	s.DeleteService(deleted.Name)
	s.WaitServiceReplaced(deleted)
	f.passServices()
	wantTold("the replacement of a deleted Service", 3, 1)
}

package integration

import (
	"cmp"
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

// TestEveryFieldRandomEdits makes random edits of a LocalService. After each that the API server accepts, the Services
// are as the spec says, by no more writes than that takes; what others have set on them is still there; and the
// controller has nothing more to write, also when it looks at them again.
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
	isLoadBalancer := spec.LoadBalancerClass != nil && old.Spec.Type == corev1.ServiceTypeLoadBalancer && spec.Type == corev1.ServiceTypeLoadBalancer
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

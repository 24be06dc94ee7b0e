package plan

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

type apiSlice = discoveryv1.EndpointSlice

func byName(all ...*apiSlice) map[string]*EndpointSlice {
	out := map[string]*EndpointSlice{}
	for _, s := range all {
		out[s.Name] = SliceFromAPI(s)
	}
	return out
}

// sourceSlice returns an EndpointSlice as Kubernetes creates it for the Source, with a ready pod on each node.
func sourceSlice(source *Service, name string, nodes ...string) *apiSlice {
	return objects.SourceSlice(source.GetName(), source.UID, name, nodes...)
}

// copies returns what makes the copy of an EndpointSlice, edited.
func copies(names *Names) func(*apiSlice, ...func(*apiSlice)) *apiSlice {
	return func(s *apiSlice, edit ...func(*apiSlice)) *apiSlice {
		c := names.Copy(&CopyChange{Name: CopyName(s.Name), Source: SliceFromAPI(s)})
		c.UID = types.UID("uid-" + c.Name)
		return objects.Edit(c, edit...)
	}
}

// TestCopies: each EndpointSlice of Kubernetes has a copy, and those of others have none. After that, everything is in
// place.
func TestCopies(t *testing.T) {
	ls, base := localService(hostnamesMode), newNames(t)
	copyOf := copies(base)
	one, two := sourceSlice(base.Source, "s1", "1", "2"), sourceSlice(base.Source, "s2", "3")
	edited := func(s *apiSlice, edit ...func(*apiSlice)) *apiSlice { return objects.Edit(s.DeepCopy(), edit...) }
	named := func(name string) func(*apiSlice) { return func(s *apiSlice) { s.Name = name } }
	managedBy := func(manager string) func(*apiSlice) {
		return func(s *apiSlice) { s.Labels[discoveryv1.LabelManagedBy] = manager }
	}
	controlledBy := func(kind string, uid types.UID) func(*apiSlice) {
		return func(s *apiSlice) { s.OwnerReferences[0].Kind, s.OwnerReferences[0].UID = kind, uid }
	}
	hinted := func(s *apiSlice) {
		s.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}}
	}
	selecting := func(names *Names) {
		published := Whole(names.Published, nodeLabelKey).DeepCopy()
		published.Spec.Selector = map[string]string{"x": "y"}
		names.Published = kept(published)
	}
	const create2, delete2, update1, wait1 = "Create s2-named", "Delete s2-named", "Update s1-named", "Wait s1-named"
	for name, c := range map[string]struct {
		slices []*apiSlice
		want   []string
		ready  int          // names
		edit   func(*Names) // if its Services are not as usual
	}{
		"in place":             {[]*apiSlice{one, copyOf(one), two, copyOf(two)}, nil, 3, nil},
		"missing":              {[]*apiSlice{one, copyOf(one), two}, []string{create2}, 2, nil},
		"a source is gone":     {[]*apiSlice{one, copyOf(one), copyOf(two)}, []string{delete2}, 3, nil},
		"all sources are gone": {[]*apiSlice{copyOf(one), copyOf(two)}, nil, 3, nil},
		"no Service":           {[]*apiSlice{one, copyOf(one), two}, nil, 0, func(names *Names) { names.Published = nil }},
		"no source":            {[]*apiSlice{one, copyOf(one), two}, nil, 0, func(names *Names) { names.Source = nil }},
		"of a selector that somebody set": {[]*apiSlice{one, copyOf(one), copyOf(two),
			copyOf(two, named("s3"), managedBy(KubernetesSliceManager))}, []string{delete2}, 3, selecting},
		"hints": {[]*apiSlice{edited(one, hinted), copyOf(one)}, []string{update1}, 2, nil},
		"another port": {[]*apiSlice{edited(one, func(s *apiSlice) { s.Ports[0].Port = new(int32(9)) }), copyOf(one)},
			[]string{update1}, 2, nil},
		"a hostname was edited": {[]*apiSlice{one, copyOf(one, renamedTo("x"))}, []string{update1}, 2, nil},
		"a label was taken": {[]*apiSlice{one, copyOf(one, func(s *apiSlice) { delete(s.Labels, corev1.IsHeadlessService) })},
			[]string{update1}, 2, nil},
		"a label was added": {[]*apiSlice{one, copyOf(one, func(s *apiSlice) { s.Labels["x"] = "y" })}, nil, 2, nil},
		"the manager was changed": {[]*apiSlice{one, copyOf(one, managedBy(KubernetesSliceManager))}, []string{wait1}, 0,
			nil},
		"its controller was taken": {[]*apiSlice{one, copyOf(one, func(s *apiSlice) { s.OwnerReferences = nil })},
			[]string{update1}, 2, nil},
		"in place in one of two": {[]*apiSlice{one, copyOf(one, renamedTo("x")), edited(one, named("s2")),
			copyOf(edited(one, named("s2")))}, []string{update1}, 3, nil},
		"of a Service that is gone": {[]*apiSlice{one, copyOf(one, controlledBy("Service", "gone"))}, []string{wait1}, 0,
			nil},
		"without a controller": {[]*apiSlice{one, copyOf(one),
			edited(two, func(s *apiSlice) { s.OwnerReferences[0].Controller = nil })}, nil, 2, nil},
		"of another manager": {[]*apiSlice{one, copyOf(one), copyOf(two, named("demo-mesh"),
			managedBy("endpointslice-mesh-controller.cilium.io"))}, nil, 2, nil},
		"of another manager, by the name of a copy": {[]*apiSlice{one, copyOf(one), two, copyOf(two, managedBy("mesh"))},
			[]string{"Wait s2-named"}, 2, nil},
		"mirrored by Kubernetes": {[]*apiSlice{one, copyOf(one), copyOf(two, controlledBy("Endpoints", "endpoints"),
			managedBy("endpointslicemirroring-controller.k8s.io"))}, nil, 2, nil},
		"by hand": {[]*apiSlice{one, copyOf(one), edited(two, managedBy("me"))}, nil, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			names := unpublished(ls, someNodes, nil)
			names.Source, names.Published, names.Slices = base.Source, base.Published, byName(c.slices...)
			if c.edit != nil {
				c.edit(names)
			}
			out := names.Copies()
			var got []string
			for _, change := range out.Changes {
				got = append(got, string(change.Action)+" "+change.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(out.ready) != c.ready {
				t.Errorf("%d names ready, want %d; changes (-want +got):\n%s", len(out.ready), c.ready, diff)
			}
			checkEachChange(t, names, out)
			for i := range out.Changes {
				change := &out.Changes[i]
				if change.Action == Delete {
					delete(names.Slices, change.Name)
				} else if change.Action != Wait {
					names.Slices[change.Name] = SliceFromAPI(names.Copy(change))
				}
			}
			if again := names.Copies(); len(again.Changes) > 0 && !strings.HasPrefix(got[0], "Wait") {
				t.Errorf("changes of the next plan: %v", again.Changes)
			}
		})
	}
}

// checkEachChange checks that the changes of single EndpointSlices together are those of all. Without any source, the
// copies are left out of those of all.
func checkEachChange(t *testing.T, names *Names, all Copies) {
	t.Helper()
	want, got := map[string]Action{}, map[string]Action{}
	for _, change := range all.Changes {
		want[change.Name] = change.Action
	}
	for name := range names.Slices {
		if all.Sources == 0 && names.Source != nil && names.Published != nil {
			want[name] = Delete
		}
		if change := names.Change(name); change.Action != "" {
			got[change.Name] = change.Action
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one by one (-want +got):\n%s", diff)
	}
}

// TestCopy: everything except the hostname is as Kubernetes has published it.
func TestCopy(t *testing.T) {
	ls := localService(hostnamesMode, selecting("os=linux"))
	base := newNames(t)
	source, published := base.Source, base.Published
	names := unpublished(ls, []string{"1"}, nil)
	names.Published = published
	s := sourceSlice(source, "s1", "1", "2", "3")
	before := s.DeepCopy()
	current := SliceFromAPI(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "9"}})
	got := names.Copy(&CopyChange{Action: Update, Name: "s1-named", Source: SliceFromAPI(s), Current: current})
	want := before.DeepCopy()
	want.ObjectMeta = metav1.ObjectMeta{Name: "s1-named", Namespace: "default", UID: "u", ResourceVersion: "9",
		Labels: map[string]string{"kubernetes.io/service-name": "demo", "service.kubernetes.io/headless": "",
			"endpointslice.kubernetes.io/managed-by": "local-service-controller.localservice.dev", "owner": "demo",
			"localservice.dev/hostnames": "published"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "demo",
			UID: published.UID, Controller: new(true), BlockOwnerDeletion: new(true)}}}
	want.Endpoints = want.Endpoints[:1]
	want.Endpoints[0].Hostname = new("1")
	if kept := SliceFromAPI(got); kept.endpoints != nil {
		t.Errorf("of each endpoint of a copy is kept: %v", kept.endpoints)
	}
	if diff := cmp.Diff(want, got) + cmp.Diff(before, s); diff != "" {
		t.Errorf("-want +got, or the source was changed:\n%s", diff)
	}
}

// publishing is the input for a LocalService whose Services are in place, and have the pods on some nodes.
func publishing(t *testing.T, ls *v1alpha1.LocalService, nodes ...string) Input {
	t.Helper()
	ts := templates(t, ls)
	in := newCluster(existing(t, ls, nil)...).input(ts[0], nodes...)
	in.Templates = ts
	in.Names = NamesOf(ls, nodeLabelKey, someNodes, nil, func(name string) *Service { return in.Owned[name] })
	source := sourceSlice(in.Names.Source, "s1", nodes...)
	in.Names.Slices = byName(source, copies(in.Names)(source))
	return in
}

// TestReadyNames: the names that are published with a ready endpoint count, whether or not their copy is up to date: an
// update may be refused. Names that are not wanted do not count.
func TestReadyNames(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*apiSlice)
		want int
	}{
		"up to date": {func(*apiSlice) {}, 2},
		"outdated":   {func(s *apiSlice) { s.Endpoints[0].Addresses = []string{"10.9.9.9"} }, 2},
		"not ready":  {func(s *apiSlice) { s.Endpoints[0].Conditions.Ready = new(false) }, 1},
		"renamed":    {renamedTo("x"), 1},
		"nameless":   {func(s *apiSlice) { s.Endpoints[0].Hostname = nil }, 1},
		"of another manager": {func(s *apiSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "mesh"
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := publishing(t, localService(hostnamesMode), "a", "b")
			edited := in.Names.Slices["s1-named"].Get().DeepCopy()
			c.edit(edited)
			in.Names.Slices[edited.Name] = SliceFromAPI(edited)
			if plan := Compute(in); plan.Ready != c.want || plan.Nodes != 2 {
				t.Errorf("%d of %d ready, want %d of 2", plan.Ready, plan.Nodes, c.want)
			}
		})
	}
}

// TestBeingPublished: the names of a new spec are being published until copies exist and most are up to date. Later,
// copies only follow the pods.
func TestBeingPublished(t *testing.T) {
	for name, c := range map[string]struct {
		condition metav1.Condition
		isNew     bool
	}{
		"never reported": {metav1.Condition{}, true},
		"writing": {metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWritingServices,
			ObservedGeneration: 2}, true},
		"written":      {metav1.Condition{Status: metav1.ConditionFalse, ObservedGeneration: 2}, false},
		"another spec": {metav1.Condition{Status: metav1.ConditionFalse, ObservedGeneration: 1}, true},
		"refused": {metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWriteFailed,
			ObservedGeneration: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ls := localService(hostnamesMode)
			ls.Generation = 2
			c.condition.Type = v1alpha1.ConditionProgressing
			ls.Status.Conditions = []metav1.Condition{c.condition}
			in := publishing(t, ls, "a", "b")
			expect := func(when string, want bool) {
				t.Helper()
				if plan := Compute(in); plan.Copies.BeingPublished() != want {
					t.Errorf("%s: being published: %t, want %t", when, !want, want)
				}
			}
			expect("in place", false)
			outdated := in.Names.Slices["s1-named"].Get().DeepCopy()
			renamedTo("x")(outdated)
			in.Names.Slices[outdated.Name] = SliceFromAPI(outdated)
			expect("outdated", c.isNew)
			other := sourceSlice(in.Names.Source, "s2")
			maps.Copy(in.Names.Slices, byName(other, copies(in.Names)(other)))
			expect("one of two outdated", false)
		})
	}
}

package plan

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func fromAPI(slice *discoveryv1.EndpointSlice) apiSlice { return SliceFromAPI(slice).(apiSlice) }

func byName(all ...apiSlice) map[string]EndpointSlice {
	out := map[string]EndpointSlice{}
	for _, s := range all {
		out[s.Name] = s
	}
	return out
}

// sourceSlice returns an EndpointSlice as Kubernetes creates it for the Source, with a ready pod on each node.
func sourceSlice(source Service, name string, nodes ...string) apiSlice {
	return fromAPI(objects.SourceSlice(source, name, nodes...))
}

// copies returns what makes the copy of an EndpointSlice, edited.
func copies(names *Names) func(apiSlice, ...func(*discoveryv1.EndpointSlice)) apiSlice {
	return func(s apiSlice, edit ...func(*discoveryv1.EndpointSlice)) apiSlice {
		c := names.Copy(&CopyChange{Name: CopyName(s.Name), Source: s})
		c.UID = types.UID("uid-" + c.Name)
		for _, e := range edit {
			e(c)
		}
		return fromAPI(c)
	}
}

// written marks the status of a LocalService: nothing is being written for its spec.
func written(ls *v1alpha1.LocalService) {
	ls.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse,
		ObservedGeneration: ls.Generation}}
}

// TestCopies: each EndpointSlice of Kubernetes has a copy, and those of others have none. After that, everything is in
// place.
func TestCopies(t *testing.T) {
	ls, base := localService(hostnamesMode), newNames(t)
	source, published, copyOf := base.Source, base.Published, copies(base)
	one, two := sourceSlice(source, "s1", "1", "2"), sourceSlice(source, "s2", "3")
	edited := func(s apiSlice, edit func(*discoveryv1.EndpointSlice)) apiSlice {
		out := s.DeepCopy()
		edit(out)
		return fromAPI(out)
	}
	endpoint := func(edit func(*discoveryv1.Endpoint)) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { edit(&s.Endpoints[0]) }
	}
	renamed := func(e *discoveryv1.Endpoint) { e.Hostname = new("x") }
	selects := Whole(published, nodeLabelKey).DeepCopy()
	selects.Spec.Selector = map[string]string{"x": "y"}
	selecting := kept(selects)
	const create2, delete2, update1 = "Create s2-named", "Delete s2-named", "Update s1-named"
	for name, c := range map[string]struct {
		slices    []apiSlice
		source    Service
		published Service
		want      []string
		upToDate  int // nodes
		answering int
	}{
		"in place": {[]apiSlice{one, copyOf(one), two, copyOf(two)}, source, published, nil, 3, 3},
		"missing":  {[]apiSlice{one, copyOf(one), two}, source, published, []string{create2}, 2, 2},
		"a source is gone": {[]apiSlice{one, copyOf(one), copyOf(two)}, source, published, []string{delete2},
			2, 2},
		"all sources are gone": {[]apiSlice{copyOf(one), copyOf(two)}, source, published, nil, 0, 0},
		"no Service":           {[]apiSlice{one, copyOf(one), two}, source, nil, nil, 0, 0},
		"no source":            {[]apiSlice{one, copyOf(one), two}, nil, published, nil, 0, 0},
		"not ready": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Conditions.Ready = new(false)
		})), copyOf(one)}, source, published, []string{update1}, 0, 1},
		"not known whether ready": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Conditions = discoveryv1.EndpointConditions{}
		})), copyOf(one)}, source, published, []string{update1}, 0, 2},
		"terminating": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Conditions.Terminating = new(true)
		})), copyOf(one)}, source, published, []string{update1}, 0, 2},
		"hints": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}}
		})), copyOf(one)}, source, published, []string{update1}, 0, 2},
		"another port": {[]apiSlice{edited(one, func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(9)) }),
			copyOf(one)}, source, published, []string{update1}, 0, 2},
		"another order": {[]apiSlice{edited(one, func(s *discoveryv1.EndpointSlice) { slices.Reverse(s.Endpoints) }),
			copyOf(one)}, source, published, []string{update1}, 0, 2},
		"a hostname was edited": {[]apiSlice{one, copyOf(one, endpoint(renamed))},
			source, published, []string{update1}, 0, 2},
		"an address was added": {[]apiSlice{one, copyOf(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Addresses = append(e.Addresses, "10.9.9.9")
		}))}, source, published, []string{update1}, 0, 2},
		"a label was taken": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, corev1.IsHeadlessService)
		})}, source, published, []string{update1}, 0, 2},
		"the manager was changed": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = KubernetesSliceManager
		})}, source, published, []string{update1}, 0, 2},
		"its controller was taken": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences = nil
		})}, source, published, []string{update1}, 0, 2},
		"in place in one of two": {[]apiSlice{one, copyOf(one, endpoint(renamed)), edited(one,
			func(s *discoveryv1.EndpointSlice) { s.Name = "s2" }), copyOf(edited(one,
			func(s *discoveryv1.EndpointSlice) { s.Name = "s2" }))}, source, published, []string{update1}, 2, 2},
		"of a selector that somebody set": {[]apiSlice{one, copyOf(one), copyOf(two), edited(copyOf(two),
			func(s *discoveryv1.EndpointSlice) {
				s.Name, s.Labels[discoveryv1.LabelManagedBy] = "s3", KubernetesSliceManager
			})}, source, selecting, []string{delete2}, 2, 2},
		"a label was added": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) { s.Labels["x"] = "y" })},
			source, published, nil, 2, 2},
		"of a Service that is gone": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].UID = "gone"
		})}, source, published, []string{"Wait s1-named"}, 0, 0},
		"somebody's": {[]apiSlice{one, copyOf(one), edited(two, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].UID = "another"
		})}, source, published, nil, 2, 2},
		"without a controller": {[]apiSlice{one, copyOf(one), edited(two, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].Controller = nil
		})}, source, published, nil, 2, 2},
		"by hand": {[]apiSlice{one, copyOf(one), edited(two, func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "me"
		})}, source, published, nil, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			names := NewNames(ls, objects.Named)
			names.Source, names.Published, names.Slices = c.source, c.published, byName(c.slices...)
			out := names.Copies()
			var got []string
			for _, change := range out.Changes {
				got = append(got, string(change.Action)+" "+change.Name)
			}
			names.localService = localService(hostnamesMode, written)
			later := names.Copies()
			if diff := cmp.Diff(c.want, got); diff != "" || len(out.ready) != c.upToDate ||
				len(later.ready) != c.answering {
				t.Errorf("%d nodes up to date, want %d; %d answering, want %d; changes (-want +got):\n%s",
					len(out.ready), c.upToDate, len(later.ready), c.answering, diff)
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
			if again := names.Copies(); len(again.Changes) > 0 && got[0] != "Wait s1-named" {
				t.Errorf("changes of the next plan: %v", again.Changes)
			}
		})
	}
}

// checkEachChange checks that the changes of single EndpointSlices together are those of all.
func checkEachChange(t *testing.T, names *Names, all Copies) {
	t.Helper()
	want, got := map[string]Action{}, map[string]Action{}
	for _, change := range all.Changes {
		want[change.Name] = change.Action
	}
	for name := range names.Slices {
		if change := names.Change(name); change.Action != "" && (change.Action != Delete ||
			all.Sources > 0) {
			got[change.Name] = change.Action
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one by one (-want +got):\n%s", diff)
	}
}

// TestCopy: everything except the hostname is as Kubernetes has published it.
func TestCopy(t *testing.T) {
	ls := localService(hostnamesMode, func(ls *v1alpha1.LocalService) {
		ls.Spec.NodeSelector = map[string]string{"os": "linux"}
	})
	base := newNames(t)
	source, published := base.Source, base.Published
	names := NewNames(ls, func(name, _ string) (string, bool) { return "", name == "1" })
	names.Published = published
	s := sourceSlice(source, "s1", "1", "2", "3")
	before := s.DeepCopy()
	current := SliceFromAPI(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "9"}})
	got := names.Copy(&CopyChange{Action: Update, Name: "s1-named", Source: s, Current: current})
	want := before.DeepCopy()
	want.ObjectMeta = metav1.ObjectMeta{Name: "s1-named", Namespace: "default", UID: "u", ResourceVersion: "9",
		Labels: map[string]string{"kubernetes.io/service-name": "demo", "service.kubernetes.io/headless": "",
			"endpointslice.kubernetes.io/managed-by": "local-service-controller.localservice.dev", "owner": "demo",
			"localservice.dev/hostnames": "published"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "demo",
			UID: published.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true)}}}
	want.Endpoints = want.Endpoints[:1]
	want.Endpoints[0].Hostname = new("1")
	if diff := cmp.Diff(want, got) + cmp.Diff(before, s.EndpointSlice); diff != "" {
		t.Errorf("-want +got, or the source was changed:\n%s", diff)
	}
}

// publishing is the input for a LocalService whose Services are in place, and have the pods on some nodes.
func publishing(t *testing.T, ls *v1alpha1.LocalService, nodes ...string) Input {
	t.Helper()
	ts := templates(t, ls)
	in := newCluster(existing(t, ls, nil)...).input(ts[0], nodes...)
	in.Templates = ts
	in.Names = NamesOf(ls, nodeLabelKey, objects.Named, func(name string) Service { return in.Owned[name] })
	source := sourceSlice(in.Names.Source, "s1", nodes...)
	in.Names.Slices = byName(source, copies(in.Names)(source))
	return in
}

// TestReadyNames: names whose copy a pod has just outdated count as ready, but none while a new spec is published, or
// something is refused.
func TestReadyNames(t *testing.T) {
	for name, c := range map[string]struct {
		condition metav1.Condition
		ready     int
	}{
		"never reported": {metav1.Condition{}, 0},
		"writing": {metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWritingServices,
			ObservedGeneration: 2}, 0},
		"written":      {metav1.Condition{Status: metav1.ConditionFalse, ObservedGeneration: 2}, 2},
		"another spec": {metav1.Condition{Status: metav1.ConditionFalse, ObservedGeneration: 1}, 0},
		"refused": {metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWriteFailed,
			ObservedGeneration: 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ls := localService(hostnamesMode)
			ls.Generation = 2
			c.condition.Type = v1alpha1.ConditionProgressing
			ls.Status.Conditions = []metav1.Condition{c.condition}
			in := publishing(t, ls, "a", "b")
			if plan := Compute(in); plan.Ready != 2 || plan.Copies.BeingPublished() {
				t.Errorf("%d ready, want 2; being published: %v", plan.Ready, plan.Copies.BeingPublished())
			}
			outdated := in.Names.Slices["s1-named"].(apiSlice).DeepCopy()
			renamedTo("x")(outdated)
			in.Names.Slices[outdated.Name] = fromAPI(outdated)
			if plan := Compute(in); plan.Ready != c.ready || plan.Copies.BeingPublished() != (c.ready == 0) {
				t.Errorf("outdated: %d ready, want %d; being published: %v", plan.Ready, c.ready,
					plan.Copies.BeingPublished())
			}
			other := sourceSlice(in.Names.Source, "s2")
			maps.Copy(in.Names.Slices, byName(other, copies(in.Names)(other)))
			if plan := Compute(in); plan.Ready != c.ready || plan.Copies.BeingPublished() {
				t.Errorf("one of two outdated: %d ready, want %d; being published: %v", plan.Ready, c.ready,
					plan.Copies.BeingPublished())
			}
		})
	}
}

// TestReadyNamesOfSelected: pods on nodes without a name do not count.
func TestReadyNamesOfSelected(t *testing.T) {
	ls := localService(hostnamesMode)
	in := publishing(t, ls, "a", "b")
	ls.Spec.NodeSelector = map[string]string{"os": "linux"}
	in.Nodes = []string{"a", "c"}
	in.Names.label = func(node, _ string) (string, bool) { return "", slices.Contains(in.Nodes, node) }
	source := sourceSlice(in.Names.Source, "s1", "a", "b")
	in.Names.Slices = byName(source, copies(in.Names)(source))
	if plan := Compute(in); plan.Ready != 1 || plan.Nodes != 2 {
		t.Errorf("%d of %d ready, want 1 of 2", plan.Ready, plan.Nodes)
	}
}

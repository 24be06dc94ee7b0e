package plan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func hostnamesMode(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }

func groupedBy(key string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = key }
}

// TestTemplatesOfHostnames: the two Services of mode Hostnames. What is put on the generated Services is on the one
// with the names.
func TestTemplatesOfHostnames(t *testing.T) {
	ls := localService(specs["metadata"], specs["not ready addresses"], specs["cluster IP"], hostnamesMode, groupedBy("zone"))
	both := templates(t, ls)
	if len(both) != 2 {
		t.Fatalf("%d templates, want 2", len(both))
	}
	source, published := both[0].Service(""), both[1].Service("")
	for _, s := range []*corev1.Service{source, published} {
		if s.Spec.ClusterIP != corev1.ClusterIPNone || !s.Spec.PublishNotReadyAddresses || len(s.Spec.Ports) != 1 ||
			s.Labels["owner"] != "demo" || s.Labels["vm/rack"] != "" || !metav1.IsControlledBy(s, ls) {
			t.Errorf("%+v", s)
		}
	}
	if published.Name != "demo" || published.Spec.Selector != nil || published.Labels["team"] != "a" ||
		published.Annotations["localservice.dev/group-by"] != "zone" || published.Labels[v1alpha1.HostnamesLabelKey] != "published" {
		t.Errorf("the Service with the names: %+v", published)
	}
	if diff := cmp.Diff(ls.Spec.Selector, source.Spec.Selector); diff != "" || source.Labels["team"] != "" ||
		source.Labels[v1alpha1.HostnamesLabelKey] != "source" || source.Name == "demo" {
		t.Errorf("the Service that selects the pods: %+v", source)
	}
}

// TestComputeHostnames: what becomes of Services when the mode is changed, and of those without a controller.
func TestComputeHostnames(t *testing.T) {
	nodes := []string{"a", "b"}
	ls, hostnames := localService(), localService(hostnamesMode)
	of := func(ls *v1alpha1.LocalService, edit ...func(*corev1.Service)) []*corev1.Service {
		var out []*corev1.Service
		ts := templates(t, ls)
		for _, template := range ts {
			for _, node := range ts.nodes(nodes) {
				s := stored(template.Service(node))
				for _, e := range edit {
					e(s)
				}
				out = append(out, s)
			}
		}
		return out
	}
	uncontrolled := func(s *corev1.Service) { s.OwnerReferences = nil }
	source := ServiceName("demo", Source, "")
	for name, c := range map[string]struct {
		ls    *v1alpha1.LocalService
		there []*corev1.Service
		want  []string
	}{
		"new":                 {hostnames, nil, []string{"Create demo", "Create " + source}},
		"in place":            {hostnames, of(hostnames), nil},
		"to hostnames":        {hostnames, of(ls), []string{"Create demo", "Retire demo-a", "Retire demo-b", "Create " + source}},
		"to Services":         {ls, of(hostnames), []string{"Retire demo", "Create demo-a", "Create demo-b", "Retire " + source}},
		"orphans":             {hostnames, of(hostnames, uncontrolled), []string{"Adopt demo", "Adopt " + source}},
		"a stranger's":        {hostnames, []*corev1.Service{foreign("demo")}, []string{"Conflict demo", "Create " + source}},
		"selects by itself":   {hostnames, of(hostnames, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"x": "y"} }), []string{"Update demo", "Update " + source}},
		"the other's purpose": {hostnames, of(hostnames, uncontrolled, func(s *corev1.Service) { delete(s.Labels, v1alpha1.HostnamesLabelKey) }), []string{"Conflict demo", "Conflict " + source}},
	} {
		t.Run(name, func(t *testing.T) {
			ts := templates(t, c.ls)
			in := newCluster(c.there...).input(ts[0], nodes...)
			in.Templates = ts
			if diff := cmp.Diff(c.want, actions(Compute(in))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestHostnamesOf: which hostname a node has, and how many there are.
func TestHostnamesOf(t *testing.T) {
	nodes := map[string]labels.Set{"a": {"os": "linux", "zone": "x"}, "b.c": {"os": "linux", "zone": "x"},
		"d": {"os": "linux", "zone": ""}, "e": {"os": "other", "zone": "y"}, "f": {"os": "linux"}}
	published := kept(stored(templates(t, localService(hostnamesMode, groupedBy("zone")))[1].Service("")))
	linux := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"os": "linux"} }
	for name, c := range map[string]struct {
		edit      []func(*v1alpha1.LocalService)
		published Service
		want      []string // of a, b.c, d, e, f, one that is not known, and none
		count     int
	}{
		"of nodes": {[]func(*v1alpha1.LocalService){hostnamesMode}, nil,
			[]string{"a", naming.Hostname("b.c"), "d", "e", "f", "new", ""}, 5},
		"of selected nodes": {[]func(*v1alpha1.LocalService){hostnamesMode, linux}, nil,
			[]string{"a", naming.Hostname("b.c"), "d", "", "f", "", ""}, 4},
		"of groups": {[]func(*v1alpha1.LocalService){hostnamesMode, groupedBy("zone")}, nil,
			[]string{"x", "x", "", "y", "", "", ""}, 2},
		"of groups of selected nodes": {[]func(*v1alpha1.LocalService){hostnamesMode, groupedBy("zone"), linux}, nil,
			[]string{"x", "x", "", "", "", "", ""}, 1},
		"of groups, until another mode is in place": {nil, published,
			[]string{"x", "x", "", "y", "", "", ""}, 2},
		"not of groups any more": {[]func(*v1alpha1.LocalService){hostnamesMode}, published,
			[]string{"a", naming.Hostname("b.c"), "d", "e", "f", "new", ""}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			ls := localService(c.edit...)
			h := NewHostnames(ls, c.published, func(name, key string) (string, bool) {
				set, found := nodes[name]
				return set[key], found && Selects(ls, set)
			})
			var selected []string
			for i, node := range []string{"a", "b.c", "d", "e", "f", "new", ""} {
				got := h.Of(node)
				if want := c.want[i]; got != want {
					t.Errorf("%q has %q, want %q", node, got, want)
				}
				if set, found := nodes[node]; found && Selects(ls, set) {
					selected = append(selected, node)
				}
			}
			if got := h.Count(selected); got != c.count {
				t.Errorf("%d names, want %d", got, c.count)
			}
		})
	}
}

func fromAPI(slice *discoveryv1.EndpointSlice) apiSlice { return SliceFromAPI(slice).(apiSlice) }

func byName(all ...apiSlice) map[string]EndpointSlice {
	out := map[string]EndpointSlice{}
	for _, s := range all {
		out[s.Name] = s
	}
	return out
}

// sourceSlice is an EndpointSlice that Kubernetes has made for the Source, with a ready pod on each node.
func sourceSlice(source Service, name string, nodes ...string) apiSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default",
			Labels: map[string]string{discoveryv1.LabelManagedBy: KubernetesSliceManager},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
				&metav1.ObjectMeta{Name: source.GetName(), UID: source.GetUID()}, corev1.SchemeGroupVersion.WithKind("Service"))}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for _, node := range nodes {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0." + node}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "p" + node}})
	}
	return fromAPI(s)
}

// TestComputeCopies: a copy for each of Kubernetes' EndpointSlices, and none for those of others; and what is copied is
// in place then.
func TestComputeCopies(t *testing.T) {
	ls := localService(hostnamesMode)
	both := templates(t, ls)
	source, published := kept(stored(both[0].Service(""))), kept(stored(both[1].Service("")))
	hostnames := NewHostnames(ls, published, nil)
	copyOf := func(s apiSlice, edit ...func(*discoveryv1.EndpointSlice)) apiSlice {
		c := Copy(&CopyChange{Name: copyName(s.Name), Source: s}, published, hostnames)
		c.UID = types.UID("uid-" + c.Name)
		for _, e := range edit {
			e(c)
		}
		return fromAPI(c)
	}
	one, two := sourceSlice(source, "s1", "1", "2"), sourceSlice(source, "s2", "3")
	edited := func(s apiSlice, edit func(*discoveryv1.EndpointSlice)) apiSlice {
		out := s.DeepCopy()
		edit(out)
		return fromAPI(out)
	}
	endpoint := func(edit func(*discoveryv1.Endpoint)) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { edit(&s.Endpoints[0]) }
	}
	for name, c := range map[string]struct {
		slices      []apiSlice
		source      Service
		published   Service
		isContested bool
		want        []string
		ready       int
	}{
		"in place":             {[]apiSlice{one, copyOf(one), two, copyOf(two)}, source, published, false, nil, 3},
		"missing":              {[]apiSlice{one, copyOf(one), two}, source, published, false, []string{"Create s2-named"}, 3},
		"a source is gone":     {[]apiSlice{one, copyOf(one), copyOf(two)}, source, published, false, []string{"Delete s2-named"}, 2},
		"all sources are gone": {[]apiSlice{copyOf(one), copyOf(two)}, source, published, false, nil, 0},
		"no Service":           {[]apiSlice{one, copyOf(one), two}, source, nil, false, nil, 0},
		"no source":            {[]apiSlice{one, copyOf(one), two}, nil, published, false, nil, 0},
		"not ready": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) { e.Conditions.Ready = new(false) })),
			copyOf(one)}, source, published, false, []string{"Update s1-named"}, 1},
		"not known whether ready": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Conditions = discoveryv1.EndpointConditions{}
		})), copyOf(one)}, source, published, false, []string{"Update s1-named"}, 2},
		"terminating": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = new(true) })),
			copyOf(one)}, source, published, false, []string{"Update s1-named"}, 2},
		"hints": {[]apiSlice{edited(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}}
		})), copyOf(one)}, source, published, false, []string{"Update s1-named"}, 2},
		"another port": {[]apiSlice{edited(one, func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(9)) }),
			copyOf(one)}, source, published, false, []string{"Update s1-named"}, 2},
		"another order": {[]apiSlice{edited(one, func(s *discoveryv1.EndpointSlice) { slices.Reverse(s.Endpoints) }),
			copyOf(one)}, source, published, false, []string{"Update s1-named"}, 2},
		"a hostname was edited": {[]apiSlice{one, copyOf(one, endpoint(func(e *discoveryv1.Endpoint) { e.Hostname = new("x") }))},
			source, published, false, []string{"Update s1-named"}, 2},
		"edited, as each time": {[]apiSlice{one, copyOf(one, endpoint(func(e *discoveryv1.Endpoint) { e.Hostname = new("x") }))},
			source, published, true, nil, 2},
		"an address was added": {[]apiSlice{one, copyOf(one, endpoint(func(e *discoveryv1.Endpoint) {
			e.Addresses = append(e.Addresses, "10.9.9.9")
		}))}, source, published, false, []string{"Update s1-named"}, 2},
		"a label was taken": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, corev1.IsHeadlessService)
		})}, source, published, false, []string{"Update s1-named"}, 2},
		"a label was added": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) { s.Labels["x"] = "y" })},
			source, published, false, nil, 2},
		"of a Service that is gone": {[]apiSlice{one, copyOf(one, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].UID = "gone"
		})}, source, published, false, []string{"Wait s1-named"}, 2},
		"somebody's": {[]apiSlice{one, copyOf(one), edited(two, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].UID = "another"
		})}, source, published, false, nil, 2},
		"without a controller": {[]apiSlice{one, copyOf(one), edited(two, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].Controller = nil
		})}, source, published, false, nil, 2},
		"by hand": {[]apiSlice{one, copyOf(one), edited(two, func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "me"
		})}, source, published, false, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			in := CopyInput{Hostnames: hostnames, Source: c.source, Published: c.published, Slices: byName(c.slices...),
				IsContested: func(EndpointSlice, SliceSum) bool { return c.isContested }}
			out := ComputeCopies(in)
			var got []string
			for _, change := range out.Changes {
				got = append(got, string(change.Action)+" "+change.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(out.Ready) != c.ready ||
				len(out.ReadyNodes(hostnames)) != c.ready {
				t.Errorf("%d ready names on %d nodes, want %d; changes (-want +got):\n%s", len(out.Ready), len(out.ReadyNodes(hostnames)),
					c.ready, diff)
			}
			for i := range out.Changes {
				change := &out.Changes[i]
				if change.Action == Delete {
					delete(in.Slices, change.Name)
				} else if change.Action != Wait {
					in.Slices[change.Name] = SliceFromAPI(Copy(change, published, hostnames))
				}
			}
			if again := ComputeCopies(in); len(again.Changes) > 0 && got[0] != "Wait s1-named" {
				t.Errorf("and again: %v", again.Changes)
			}
		})
	}
}

// TestCopy: all but the hostname is as Kubernetes has published it.
func TestCopy(t *testing.T) {
	ls := localService(hostnamesMode, func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"os": "linux"} })
	both := templates(t, ls)
	source, published := kept(stored(both[0].Service(""))), kept(stored(both[1].Service("")))
	hostnames := NewHostnames(ls, published, func(name, _ string) (string, bool) { return "", name == "1" })
	s := sourceSlice(source, "s1", "1", "2", "3")
	before := s.DeepCopy()
	current := SliceFromAPI(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "9"}})
	got := Copy(&CopyChange{Action: Update, Name: "s1-named", Source: s, Current: current}, published, hostnames)
	want := before.DeepCopy()
	want.ObjectMeta = metav1.ObjectMeta{Name: "s1-named", Namespace: "default", UID: "u", ResourceVersion: "9",
		Labels: map[string]string{"kubernetes.io/service-name": "demo", "service.kubernetes.io/headless": "",
			"endpointslice.kubernetes.io/managed-by": "local-service-controller.localservice.dev", "owner": "demo",
			"localservice.dev/hostnames": "published"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "demo", UID: published.GetUID(),
			Controller: new(true), BlockOwnerDeletion: new(true)}}}
	want.Endpoints = want.Endpoints[:1]
	want.Endpoints[0].Hostname = new("1")
	if diff := cmp.Diff(want, got) + cmp.Diff(before, s.EndpointSlice); diff != "" {
		t.Errorf("-want +got, or the source was changed:\n%s", diff)
	}
}

// BenchmarkComputeCopies decides about 50 EndpointSlices of 100 pods each, of which none needs anything.
func BenchmarkComputeCopies(b *testing.B) {
	ls := localService(hostnamesMode)
	both := templates(b, ls)
	source, published := kept(stored(both[0].Service(""))), kept(stored(both[1].Service("")))
	hostnames := NewHostnames(ls, published, nil)
	all := map[string]EndpointSlice{}
	for i := range 50 {
		s := sourceSlice(source, fmt.Sprint("s", i), nodeNames(100)...)
		all[s.Name] = s
		c := fromAPI(Copy(&CopyChange{Name: copyName(s.Name), Source: s}, published, hostnames))
		all[c.Name] = c
	}
	in := CopyInput{Hostnames: hostnames, Source: source, Published: published, Slices: all}
	b.ReportAllocs()
	for b.Loop() {
		if out := ComputeCopies(in); len(out.Changes) > 0 {
			b.Fatal(out.Changes)
		}
	}
}

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func groupedBy(key string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) { ls.Spec.GroupBy = key }
}

// TestTemplatesOfHostnames: mode Hostnames has two Services with the metadata for generated Services, but nobody who
// publishes Services sees the names twice.
func TestTemplatesOfHostnames(t *testing.T) {
	ls := localService(specs["metadata"], specs["not ready addresses"], specs["cluster IP"], hostnamesMode,
		groupedBy("zone"))
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
		published.Annotations["localservice.dev/group-by"] != "zone" ||
		published.Labels[v1alpha1.HostnamesLabelKey] != "published" {
		t.Errorf("the Service with the names: %+v", published)
	}
	if diff := cmp.Diff(ls.Spec.Selector, source.Spec.Selector); diff != "" || source.Labels["team"] != "a" ||
		source.Labels[v1alpha1.HostnamesLabelKey] != "source" || source.Name == "demo" {
		t.Errorf("the Service that selects the pods: %+v", source)
	}
}

// TestComputeHostnames: what is done about the two Services, also about those without a controller.
func TestComputeHostnames(t *testing.T) {
	nodes := []string{"a", "b"}
	ls := localService(hostnamesMode)
	both := func(edit ...func(*corev1.Service)) []*corev1.Service { return existing(t, ls, nodes, edit...) }
	uncontrolled := func(s *corev1.Service) { s.OwnerReferences = nil }
	source := ServiceName("demo", Source, "")
	for name, c := range map[string]struct {
		there []*corev1.Service
		want  []string
	}{
		"new":          {nil, []string{"Create demo", "Create " + source}},
		"in place":     {both(), nil},
		"orphans":      {both(uncontrolled), []string{"Adopt demo", "Adopt " + source}},
		"a stranger's": {[]*corev1.Service{foreign("demo")}, []string{"Conflict demo", "Create " + source}},
		"selects by itself": {both(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"x": "y"} }),
			[]string{"Update demo", "Update " + source}},
		"the other's purpose": {both(uncontrolled, func(s *corev1.Service) {
			delete(s.Labels, v1alpha1.HostnamesLabelKey)
		}), []string{"Conflict demo", "Conflict " + source}},
	} {
		t.Run(name, func(t *testing.T) {
			ts := templates(t, ls)
			in := newCluster(c.there...).input(ts[0], nodes...)
			in.Templates = ts
			if diff := cmp.Diff(c.want, actions(Compute(in))); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostnamesOf: which hostname a node has, and how many there are.
func TestHostnamesOf(t *testing.T) {
	nodes := map[string]labels.Set{"a": {"os": "linux", "zone": "x"}, "b.c": {"os": "linux", "zone": "x"},
		"d": {"os": "linux", "zone": ""}, "e": {"os": "other", "zone": "y"}, "f": {"os": "linux"}}
	linux := selecting("os=linux")
	for name, c := range map[string]struct {
		edit  []func(*v1alpha1.LocalService)
		want  []string // of a, b.c, d, e, f, an unknown node, and no node
		count int
	}{
		"of nodes": {[]func(*v1alpha1.LocalService){hostnamesMode},
			[]string{"a", naming.Hostname("b.c"), "d", "e", "f", "", ""}, 5},
		"of selected nodes": {[]func(*v1alpha1.LocalService){hostnamesMode, linux},
			[]string{"a", naming.Hostname("b.c"), "d", "", "f", "", ""}, 4},
		"of groups": {[]func(*v1alpha1.LocalService){hostnamesMode, groupedBy("zone")},
			[]string{"x", "x", "", "y", "", "", ""}, 2},
		"of groups of selected nodes": {[]func(*v1alpha1.LocalService){hostnamesMode, groupedBy("zone"), linux},
			[]string{"x", "x", "", "", "", "", ""}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ls := localService(c.edit...)
			var selected []string
			for node, set := range nodes {
				if Selects(ls, node, set) {
					selected = append(selected, node)
				}
			}
			h := unpublished(ls, selected, func(name, key string) (string, bool) { return nodes[name].Lookup(key) })
			for i, node := range []string{"a", "b.c", "d", "e", "f", "new", ""} {
				got := h.Of(node)
				if want := c.want[i]; got != want {
					t.Errorf("%q has %q, want %q", node, got, want)
				}
			}
			all, ready, without := h.count(selected, sets.New("a", "x", "other"))
			if all != c.count || ready != 1 {
				t.Errorf("%d names, want %d; %d ready, want 1", all, c.count, ready)
			}
			if isGrouped := ls.Spec.GroupBy != ""; isGrouped != (without == 2) || !isGrouped && without != 0 {
				t.Errorf("%d nodes have no name", without)
			}
		})
	}
}

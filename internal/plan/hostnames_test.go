package plan

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	sourceLabels := map[string]string{"owner": "demo", "team": "a", "tier": "cache",
		v1alpha1.HostnamesLabelKey: v1alpha1.HostnamesSource}
	publishedLabels := maps.Clone(sourceLabels)
	publishedLabels[v1alpha1.HostnamesLabelKey] = v1alpha1.HostnamesPublished
	publishedLabels[discoveryv1.LabelSkipMirror] = "true"
	want := []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: ServiceName("demo", Source, ""), Labels: sourceLabels,
			Annotations: map[string]string{"localservice.dev/applied-metadata": `{"labels":["team","tier"]}`}},
			Spec: corev1.ServiceSpec{Selector: ls.Spec.Selector}},
		{ObjectMeta: metav1.ObjectMeta{Name: "demo", Labels: publishedLabels,
			Annotations: map[string]string{"localservice.dev/group-by": "zone", "external-dns.example.com/ttl": "60",
				"localservice.dev/applied-metadata": `{"labels":["team","tier"],` +
					`"annotations":["external-dns.example.com/ttl"]}`}}},
	}
	var got []*corev1.Service
	ofNode := template(t, localService(specs["not ready addresses"])).Service("a")
	for i, template := range templates(t, ls) {
		got = append(got, template.Service(""))
		selector := want[i].Spec.Selector
		want[i].Spec, want[i].Namespace, want[i].OwnerReferences = ofNode.Spec, "default", ofNode.OwnerReferences
		want[i].Spec.Selector = selector
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the Source and the Service with the names (-want +got):\n%s", diff)
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

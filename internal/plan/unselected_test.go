package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestUnselected: a nodeSelector that matches no node deletes no Service of a node that exists.
func TestUnselected(t *testing.T) {
	generatedFor := func(nodes ...string) []*corev1.Service { return existing(t, localService(), nodes) }
	published := existing(t, localService(hostnamesMode), nil)
	for name, c := range map[string]struct {
		ls       *v1alpha1.LocalService
		owned    []*corev1.Service
		selected []string
		exist    []string
		want     string // changes
		held     int
	}{
		"nothing there": {ls: localService(selecting("disk=x")), exist: []string{"a"}},
		"all nodes exist": {ls: localService(selecting("disk=x", "b=c")), owned: generatedFor("a", "b"),
			exist: []string{"a", "b"}, held: 2},
		"outdated, and left so": {ls: localService(selecting("disk=x"), specs["not ready addresses"]),
			owned: generatedFor("a"), exist: []string{"a"}, held: 1},
		"a node is gone": {ls: localService(selecting("disk=x")), owned: generatedFor("a", "b"),
			exist: []string{"a"}, want: "Delete demo-b if its node is gone", held: 1},
		"all nodes are gone": {ls: localService(selecting("disk=x")), owned: generatedFor("a"),
			want: "Delete demo-a if its node is gone"},
		"one is selected": {ls: localService(selecting("disk=x")), owned: generatedFor("a", "b"),
			selected: []string{"a"}, exist: []string{"a", "b"}, want: "Delete demo-b"},
		"no nodeSelector": {ls: localService(), owned: generatedFor("a"), want: "Delete demo-a"},
		"new names":       {ls: localService(selecting("disk=x"), hostnamesMode), exist: []string{"a"}},
		"names": {ls: localService(selecting("disk=x"), hostnamesMode), owned: published,
			exist: []string{"a"}},
		"names of which a Service is missing": {ls: localService(selecting("disk=x"), hostnamesMode),
			owned: published[:1], want: "Create demo"},
		"names of which the source is missing": {ls: localService(selecting("disk=x"), hostnamesMode),
			owned: published[1:], want: "Create " + ServiceName("demo", Source, "")},
	} {
		t.Run(name, func(t *testing.T) {
			owned := map[string]*Service{}
			for _, service := range c.owned {
				owned[service.Name] = kept(service)
			}
			got := Compute(Input{Templates: templates(t, c.ls), Nodes: c.selected, Owned: owned,
				NodeExists: func(node string) bool { return slices.Contains(c.exist, node) },
				Lookup:     func(string) *Service { return nil },
				Names: NamesOf(c.ls, nodeLabelKey, nil, nil,
					func(name string) *Service { return owned[name] })})
			var changes []string
			for _, change := range all(got) {
				text := string(change.Action) + " " + change.Name
				if change.IfNodeGone {
					text += " if its node is gone"
				}
				changes = append(changes, text)
			}
			if text := strings.Join(changes, ", "); text != c.want {
				t.Errorf("changes %q, want %q", text, c.want)
			}
			selectsNothing := len(c.ls.Spec.NodeSelector) > 0 && len(c.selected) == 0
			if got.SelectsNothing != selectsNothing || got.Held != c.held {
				t.Errorf("selects nothing: %v, and holds %d, want %d", got.SelectsNothing, got.Held, c.held)
			}
		})
	}
}

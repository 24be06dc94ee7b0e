package plan

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const nodeLabelKey = v1alpha1.DefaultNodeLabelKey

// someNodes have names of their own.
var someNodes = []string{"a", "b", "1", "2", "3"}

var (
	localService  = objects.LocalService
	hostnamesMode = objects.HostnamesMode
	selecting     = objects.Selecting
	stored        = objects.Stored
	foreign       = objects.ForeignService
	specs         = objects.Specs
)

func template(t *testing.T, ls *v1alpha1.LocalService) *Template {
	t.Helper()
	return templates(t, ls)[0]
}

func templates(t *testing.T, ls *v1alpha1.LocalService) Templates {
	t.Helper()
	templates, err := NewTemplates(ls, nodeLabelKey, nil)
	if err != nil {
		t.Fatalf("NewTemplates: %v", err)
	}
	return templates
}

// cluster is a namespace with Services, as caches show it.
type cluster map[string]*corev1.Service

func newCluster(services ...*corev1.Service) cluster {
	c := cluster{}
	for _, s := range services {
		c[s.Name] = s
	}
	return c
}

func (c cluster) input(t *Template, nodes ...string) Input {
	owned, all := map[string]*Service{}, map[string]*Service{}
	for name, s := range c {
		all[name] = kept(s)
		if holder(t, s, "") == Ours {
			owned[name] = all[name]
		}
	}
	return Input{Templates: Templates{t}, Nodes: nodes, Owned: owned,
		Lookup: func(name string) *Service { return all[name] },
		Names:  unpublished(t.owner, someNodes, nil)}
}

// unpublished returns the Names of a LocalService without Services.
func unpublished(ls *v1alpha1.LocalService, nodes []string, labels NodeLabels) *Names {
	return NamesOf(ls, nodeLabelKey, nodes, labels, func(string) *Service { return nil })
}

// existing returns the Services of a LocalService for nodes as the API server has them, edited.
func existing(t *testing.T, ls *v1alpha1.LocalService, nodes []string, edit ...func(*corev1.Service)) (
	services []*corev1.Service) {
	t.Helper()
	ts := templates(t, ls)
	for _, template := range ts {
		for _, node := range ts.nodes(nodes) {
			services = append(services, objects.Edit(stored(template.Service(node)), edit...))
		}
	}
	return services
}

// kept is an existing Service that is not changed.
func kept(service *corev1.Service) *Service {
	if service == nil {
		return nil
	}
	return FromAPI(service.DeepCopy(), nodeLabelKey)
}

func holder(t *Template, service *corev1.Service, node string) Holder {
	return HolderOf(t.owner, t.purpose, node, nodeLabelKey, kept(service))
}

// run carries out a plan, as the controller and the API server would.
func (c cluster) run(t *testing.T, template *Template, plan Plan) {
	t.Helper()
	for _, change := range all(plan) {
		switch change.Action {
		case Create:
			c[change.Name] = stored(template.Service(change.Node))
		case Delete:
			delete(c, change.Name)
		case Update, Adopt:
			_, c[change.Name] = patched(t, template, c[change.Name], change.Node)
		}
	}
}

func actions(plan Plan) []string {
	var out []string
	for _, c := range all(plan) {
		out = append(out, string(c.Action)+" "+c.Name)
	}
	return out
}

// all returns the changes of a plan, sorted by name.
func all(plan Plan) []Change {
	changes := slices.Concat(slices.Collect(maps.Values(plan.Changes))...)
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return changes
}

func specNames() []string { return slices.Sorted(maps.Keys(specs)) }

// actionOn returns the action of a template for the Service of a node.
func actionOn(t *Template, live *corev1.Service, node string) Action {
	action, _ := changeOn(t, live, node)
	return action
}

// changeOn returns the same with what differs.
func changeOn(t *Template, live *corev1.Service, node string) (Action, difference) {
	c := comparison{t, map[unique.Handle[string]]difference{}}
	return c.of(kept(live), node)
}

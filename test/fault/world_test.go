package fault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const nodeLabelKey = v1alpha1.DefaultNodeLabelKey

// whole reports whether the campaigns should run whole, and not only the part that fits into `make test`.
func whole() bool { return os.Getenv("FAULT") == "whole" }

// random returns the source of a campaign's choices, and prints its seed. $SEED repeats them.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Int64N(1 << 32)
	if given, err := strconv.ParseInt(os.Getenv("SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}

// bounds limit how often something may happen.
type bounds struct{ least, most int }

func (b bounds) plus(more bounds) bounds { return bounds{b.least + more.least, b.most + more.most} }

// world is a namespace and its nodes, with a model of what should be there.
type world struct {
	*framework.Scene
	nodes   map[string]map[string]string // labels, by full name
	specs   map[string]*v1alpha1.LocalServiceSpec
	foreign map[string]*corev1.Service
	// creates and deletes count how often the controller should have created and deleted each Service.
	creates, deletes map[string]bounds
	// steady has the Services that should have existed unchanged ever since it was last set.
	steady map[string]string
	known  sets.Set[string] // the names of all nodes that have ever existed
	// left has the names of nodes that were deleted or changed since it was last set, came those of new nodes, and
	// former the LocalServices that were deleted, or whose Services had to be recreated.
	left, came, former sets.Set[string]
	history            []string
	// other is another API server on the same storage, nil for none.
	other *framework.Cluster
	// created and deleted count how often each Service was, according to the audit logs up to the marks. The logs lack
	// the result of a request whose client is gone.
	created, deleted map[string]bounds
	marks            map[*framework.Audit]framework.Mark
}

func newWorld(t testing.TB, c *framework.Cluster, nodes int) *world {
	w := &world{Scene: c.NewScene(t, "fault"), nodes: map[string]map[string]string{},
		specs: map[string]*v1alpha1.LocalServiceSpec{}, foreign: map[string]*corev1.Service{},
		creates: map[string]bounds{}, deletes: map[string]bounds{}, known: sets.New[string](), left: sets.New[string](),
		came: sets.New[string](), former: sets.New[string](), created: map[string]bounds{},
		deleted: map[string]bounds{}, marks: map[*framework.Audit]framework.Mark{}}
	for i := range nodes {
		w.addNode(fmt.Sprintf("n%d", i))
	}
	return w
}

// note records what was done, for whoever investigates a failure.
func (w *world) note(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail fails the test with all that was done.
func (w *world) fail(format string, args ...any) {
	w.T.Helper()
	w.Fatalf("%s\nWhat was done:\n%s", fmt.Sprintf(format, args...), strings.Join(w.history, "\n"))
}

// services returns the LocalService of each Service that should exist, by name.
func (w *world) services() map[string]string {
	want := map[string]string{}
	for name, spec := range w.specs {
		for node, set := range w.nodes {
			service := name + "-" + node
			if labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(set)) && w.foreign[service] == nil {
				want[service] = name
			}
		}
	}
	return want
}

// do changes the cluster, and the model with it. The Services of the replaced LocalServices must be recreated.
func (w *world) do(what string, change func(), replaced ...string) {
	w.T.Helper()
	before := w.services()
	w.former.Insert(replaced...)
	w.note("%s", what)
	change()
	after := w.services()
	w.known.Insert(slices.Collect(maps.Keys(w.nodes))...)
	maps.DeleteFunc(w.steady, func(service, owner string) bool {
		return after[service] == "" || slices.Contains(replaced, owner)
	})
	for service := range after {
		if before[service] == "" {
			w.count(w.creates, service, 1)
		}
	}
	for service, owner := range before {
		switch {
		case after[service] == "" && w.specs[owner] != nil: // Otherwise the garbage collector deletes it.
			w.count(w.deletes, service, 1)
		case after[service] != "" && slices.Contains(replaced, owner):
			w.count(w.deletes, service, 1)
			w.count(w.creates, service, 1)
		}
	}
}

func (w *world) count(counts map[string]bounds, service string, n int) {
	counts[service] = counts[service].plus(bounds{n, n})
}

// unseen makes everything done since before optional, because the controller may have observed only the result.
func (w *world) unseen(creates, deletes map[string]bounds) {
	for _, c := range []struct{ before, now map[string]bounds }{{creates, w.creates}, {deletes, w.deletes}} {
		for service, b := range c.now {
			c.now[service] = bounds{min(b.least, c.before[service].least), b.most}
		}
	}
}

// disordered allows Services that were not steady to be created and deleted a few times: the controller may have
// observed the changes of two resources in any order.
func (w *world) disordered() { w.allow(4, sets.New(localServices...), w.known) }

// allow allows Services of some LocalServices and nodes that were not steady to be created and deleted more often.
func (w *world) allow(times int, owners, nodes sets.Set[string]) {
	for name := range owners {
		for node := range nodes {
			if service := name + "-" + node; w.steady[service] == "" {
				w.creates[service] = w.creates[service].plus(bounds{0, times})
				w.deletes[service] = w.deletes[service].plus(bounds{0, times})
			}
		}
	}
}

func (w *world) addNode(name string) {
	full := w.NodeName(name)
	w.came.Insert(full)
	w.do("add node "+full, func() {
		w.nodes[full] = map[string]string{framework.SceneLabel: w.Namespace, "disk": "ssd"}
		w.CreateNode(full, w.nodes[full])
	})
}

func (w *world) deleteNode(full string) {
	w.left.Insert(full)
	w.do("delete node "+full, func() {
		delete(w.nodes, full)
		w.DeleteNode(full)
	})
}

func (w *world) labelNode(full, disk string) {
	w.left.Insert(full)
	w.do(fmt.Sprintf("label node %s disk=%s", full, disk), func() {
		w.nodes[full]["disk"] = disk
		w.PatchNode(full, fmt.Sprintf(`{"metadata":{"labels":{"disk":%q}}}`, disk))
	})
}

func (w *world) createLocalService(name string, changes ...framework.Change) {
	w.do("create LocalService "+name, func() {
		onSSD := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "ssd" }
		ls := w.Create(name, append([]framework.Change{onSSD}, changes...)...)
		w.specs[name] = &ls.Spec
	})
}

func (w *world) update(what, name string, change framework.Change) {
	var replaced []string
	before := w.specs[name].ClusterIP
	changed := w.NewLocalService(name, func(ls *v1alpha1.LocalService) { ls.Spec = *w.specs[name].DeepCopy() }, change)
	if changed.Spec.ClusterIP != before {
		replaced = []string{name}
	}
	w.do(what+" of LocalService "+name, func() {
		w.specs[name] = &changed.Spec
		w.Update(name, func(ls *v1alpha1.LocalService) { ls.Spec = changed.Spec })
	}, replaced...)
}

func (w *world) deleteLocalService(name string) {
	w.former.Insert(name)
	w.do("delete LocalService "+name, func() {
		delete(w.specs, name)
		w.Must(w.LocalServiceClient().Delete(w.Ctx(), name, metav1.DeleteOptions{}))
	})
}

// take creates a foreign Service, and give deletes it.
func (w *world) take(service string) {
	w.do("create a foreign Service "+service, func() {
		w.foreign[service] = w.CreateService(framework.NewForeignService(service, nil))
	})
}

func (w *world) give(service string) {
	w.do("delete the foreign Service "+service, func() {
		delete(w.foreign, service)
		w.DeleteService(service)
	})
}

// deleteService deletes a Service as a user might.
func (w *world) deleteService(service string) {
	w.note("a user deletes Service %s", service)
	w.DeleteService(service)
	w.count(w.creates, service, 1)
}

// controller is a controller that is restarted when it is killed.
type controller struct {
	*framework.Controller
	t    testing.TB
	c    *framework.Cluster
	args []string
}

func startController(t testing.TB, c *framework.Cluster, args ...string) *controller {
	t.Helper()
	k := &controller{t: t, c: c, args: args}
	k.start()
	return k
}

func (k *controller) start() {
	k.t.Helper()
	k.Controller = k.c.LaunchController(k.t, k.args...)
	if err := k.WaitReady(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// goroutines returns the number of the controller's goroutines.
func (k *controller) goroutines() int {
	k.t.Helper()
	_, body, err := k.Get(k.t.Context(), "/metrics")
	if err != nil {
		k.t.Fatal(err)
	}
	_, after, _ := strings.Cut(body, "\ngo_goroutines ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

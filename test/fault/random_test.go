package fault

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// player makes random changes of a world.
type player struct {
	*world
	random *rand.Rand
	added  int
	// alone is true if a change is the only one of its step.
	alone bool
}

// localServices are the names that a player uses.
var localServices = []string{"a", "b", "c"}

func (p *player) pick(of []string) string { return of[p.random.IntN(len(of))] }

// play makes one change. The first of a step may also be one that depends on everything being in place.
func (p *player) play(first bool) {
	nodes := slices.Sorted(maps.Keys(p.nodes))
	taken := slices.Sorted(maps.Keys(p.foreign))
	name := p.pick(localServices)
	exists := p.specs[name] != nil
	services := slices.Sorted(maps.Keys(p.services()))
	// The first one stays selected: a selector that matches nothing deletes nothing.
	others := nodes[min(len(nodes), 1):]
	switch choice := p.random.IntN(13); {
	case choice == 0 && len(nodes) < 6:
		p.added++
		p.addNode(fmt.Sprintf("m%d", p.added))
	case choice == 1 && len(others) > 0:
		p.deleteNode(p.pick(others))
	case choice == 2 && len(others) > 0: // deleted and recreated
		node := p.pick(others)
		p.deleteNode(node)
		p.addNode(strings.TrimPrefix(node, p.NodeName("")))
	case choice == 3 && len(others) > 0:
		p.labelNode(p.pick(others), p.pick([]string{"ssd", "hdd"}))
	case choice == 4 && len(others) > 0: // off and on again
		node := p.pick(others)
		p.labelNode(node, "hdd")
		p.labelNode(node, "ssd")
	case choice == 5 && exists:
		p.deleteLocalService(name)
	case choice == 6 && exists:
		p.deleteLocalService(name)
		p.createLocalService(name, onPort(int32(p.random.IntN(1000)+1)))
	case choice == 7 && exists:
		if p.specs[name].ClusterIP == "" {
			p.update("headless", name, headless)
		} else {
			p.update("addresses", name, framework.WithClusterIP)
		}
	case choice == 8 && exists:
		p.update("another port", name, onPort(int32(p.random.IntN(1000)+1)))
	case choice == 9 && first && !exists && len(nodes) > 0:
		if service := name + "-" + p.pick(nodes); p.foreign[service] == nil {
			p.take(service)
		}
	case choice == 9 && len(taken) > 0:
		p.give(p.pick(taken))
	case choice == 10 && first && len(services) > 0:
		p.deleteService(p.pick(services))
	case choice == 11 && first && len(services) > 0:
		service := p.pick(services)
		p.note("somebody changes Service %s", service)
		p.EditService(service, func(s *corev1.Service) { s.Spec.Selector[nodeLabelKey] = "elsewhere" })
	case choice == 12 && p.alone && len(services) > 0: // An unwanted Service is not adopted again.
		service := p.pick(services)
		p.note("somebody removes the owner of Service %s", service)
		p.EditService(service, func(s *corev1.Service) { s.OwnerReferences = nil })
	case !exists:
		p.createLocalService(name)
	}
}

// step makes a few changes, up to a maximum.
func (p *player) step(most int) { p.change(p.random.IntN(most)+1, true) }

// change makes changes of which the controller may observe only the result. inPlace is true if everything is in place
// before them.
func (p *player) change(n int, inPlace bool) {
	creates, deletes := maps.Clone(p.creates), maps.Clone(p.deletes)
	p.steady, p.left, p.came, p.former = p.services(), sets.New[string](), sets.New[string](), sets.New[string]()
	p.alone = n == 1 && inPlace
	for i := range n {
		p.play(i == 0 && inPlace)
	}
	p.unseen(creates, deletes)
	// The controller may observe the deletion of a node after a later change of a LocalService, and the deletion of a
	// LocalService after the later creation of a node.
	p.allow(1, sets.New(localServices...), p.left)
	p.allow(1, p.former, p.came)
}

// TestSequences makes thousands of changes, one after the other and without faults, and returns to the initial state:
// the controller gets out of every state.
func TestSequences(t *testing.T) {
	random, worlds, steps := random(t), 4, 10 // A step is 3 changes on average.
	if whole() {
		worlds, steps = 32, 105
	}
	k := startController(t, shared, "-kubeconfig="+shared.MustControllerKubeconfig(t))
	var players []*player
	begun := newWorld(t, shared, 1)
	begun.createLocalService("a")
	begun.settle("begun")
	goroutines := k.goroutines()
	for range worlds {
		players = append(players, &player{world: newWorld(t, shared, 3), random: rand.New(rand.NewPCG(random.Uint64(),
			0))})
	}
	var running sync.WaitGroup
	for _, p := range players {
		running.Go(func() {
			for i := range steps {
				p.step(5)
				p.settle(fmt.Sprintf("step %d", i))
			}
			for _, name := range slices.Sorted(maps.Keys(p.specs)) {
				p.deleteLocalService(name)
			}
			p.settle("without LocalServices")
			p.createLocalService("a")
			p.settle("with the first LocalService again")
		})
	}
	running.Wait()
	for _, p := range players {
		p.rest(time.Second)
	}
	if now := k.goroutines(); now > 2*goroutines {
		t.Errorf("the controller has %d goroutines, and started with %d", now, goroutines)
	}
}

// TestBadAnswers makes requests fail in every way during changes, and then makes none fail.
func TestBadAnswers(t *testing.T) {
	random, steps := random(t), len(badAnswers)
	if whole() {
		steps *= 4
	}
	proxy := newProxy(t, shared)
	startController(t, shared, "-kubeconfig="+proxy.kubeconfig)
	p := &player{world: newWorld(t, shared, 3), random: random}
	for i := range steps {
		what := badAnswers[i%len(badAnswers)]
		often := 1 + random.IntN(3)
		p.note("one of %d requests fails: %s", often, what)
		var mu sync.Mutex
		asked := 0
		proxy.set(func(r *http.Request) fault {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked%often != 0 {
				return none
			}
			return what
		}, nil)
		p.step(4)
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		proxy.set(nil, nil)
		p.note("all requests succeed")
		p.settle(fmt.Sprintf("step %d, %s", i, what))
	}
	p.rest(time.Second)
}

// watched are the resources that a LocalService's Services depend on.
var watched = []string{"localservices", "nodes", "services"}

// TestLaggingWatches makes the watches of some resources send nothing during changes. Later they send all events, or
// they never do, so that only a new list shows the objects.
func TestLaggingWatches(t *testing.T) {
	random, steps := random(t), 4
	if whole() {
		steps = 60
	}
	proxy := newProxy(t, shared)
	startController(t, shared, "-kubeconfig="+proxy.kubeconfig)
	p := &player{world: newWorld(t, shared, 3), random: random}
	p.createLocalService("a")
	p.settle("before")
	for i := range steps {
		frozen := sets.New[string]()
		for len(frozen) == 0 {
			for _, resource := range watched {
				if random.IntN(2) == 0 {
					frozen.Insert(resource)
				}
			}
		}
		p.note("the watches of %v send nothing", sets.List(frozen))
		proxy.freeze(frozen.UnsortedList()...)
		p.step(4)
		p.disordered()
		time.Sleep(time.Duration(200+random.IntN(1800)) * time.Millisecond)
		switch random.IntN(3) {
		case 0:
			p.note("they send the events that they held")
			proxy.thaw()
		case 1:
			p.note("they break, and restart")
			proxy.breakWatches(false, frozen.UnsortedList()...)
		case 2:
			p.note("they break, and are too old to restart")
			proxy.breakWatches(true, frozen.UnsortedList()...)
		}
		p.settle(fmt.Sprintf("step %d, %v", i, sets.List(frozen)))
	}
	p.rest(time.Second)
}

package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Program runs one replica of the controllers against an API server, until ctx is done. It returns when all its work
// has ended.
type Program func(ctx context.Context, replica Replica)

// Replica holds what a program needs to run as one replica.
type Replica struct {
	Config *rest.Config
	// Elect is whether it has to be elected before it works.
	Elect bool
	// Log is where its log goes, and Record where its events do.
	Log func(line string)
	// Shuffle is like rand.Shuffle, with the same result each time that the history is played.
	Shuffle func(n int, swap func(i, j int))
	Record  func(object, eventType, reason, note string)
}

// Failure describes what a history has shown to be wrong with the controllers.
type Failure struct {
	// Kind is the same for all failures of a kind, and What says what it is about.
	Kind, What string
	// Story says what happened.
	Story string
}

func (f *Failure) String() string { return fmt.Sprintf("%s: %s\n%s", f.Kind, f.What, f.Story) }

// world is a cluster in which a history happens.
type world struct {
	history  *History
	server   *APIServer
	program  Program
	guard    *guard
	story    *story
	replicas []*replica
	started  int
	pods     int // that were created

	looked int       // how many writes there were when it was last checked that everything is as it should be
	found  []problem // what was not

	mu      sync.Mutex           // of the fields below, which every write updates
	changed map[string]time.Time // when anybody but a replica last wrote, by namespace, "" for what has none
	quietAt time.Time            // when the controllers have recovered from all faults but the following ones
	freshAt time.Time            // when they have recovered from late watches
	// slowUntil is when they have recovered from slow admission in a namespace, and tardy is admission that only makes
	// everything take longer there.
	slowUntil map[string]time.Time
	tardy     map[string]slowAdmission
}

// replica is a running program.
type replica struct {
	name     string
	seed     uint64
	endpoint *Endpoint
	stop     context.CancelFunc
	done     chan struct{}
}

// Play plays a history, and returns what is wrong, nil for nothing. It must be called in a bubble of testing/synctest.
func Play(ctx context.Context, h *History, program Program) *Failure {
	w := &world{history: h, server: NewAPIServer(h.Addresses), program: program,
		looked: -1, changed: map[string]time.Time{}, slowUntil: map[string]time.Time{},
		tardy: map[string]slowAdmission{}}
	w.server.distance = h.Distance
	w.story = newStory(w.server)
	w.guard = newGuard(w.server, w.story)
	w.server.Observe(w.note)
	for _, name := range append([]string{"kube-system"}, namespaces...) {
		_ = w.server.Create(userName, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range nodes[:min(h.Nodes, len(nodes))] {
		_ = w.server.Create(userName, newNode(name))
	}
	managing, stop := context.WithCancel(ctx)
	var managers sync.WaitGroup
	managers.Go(func() { w.server.manage(managing, h.Seed) })
	for range h.Replicas {
		w.start(ctx)
	}
	time.Sleep(2 * time.Second)
	w.play(ctx)
	for _, r := range w.replicas {
		r.end()
	}
	stop()
	managers.Wait()
	return w.story.result()
}

// note records a write that has taken place.
func (w *world) note(write Write) {
	if !isReplica(write.By) {
		w.mu.Lock()
		w.changed[write.Key.Namespace] = time.Now()
		w.mu.Unlock()
	}
	pod, _ := write.Before.(*corev1.Pod)
	if passed, _ := write.After.(*corev1.Pod); pod != nil && passed != nil && isPassed(pod, passed) {
		// Its previous controller may have been a reason not to label it, and until an outage ends it is the one known.
		w.disturb(max(time.Until(w.quiet()), 0), relabelTime)
	}
}

func (w *world) play(ctx context.Context) {
	for _, s := range w.history.Steps {
		w.wait(s.After)
		w.revive(ctx)
		if w.guard.hasFailed() {
			return
		}
		w.step(ctx, s)
	}
	w.wait(2 * time.Second)
	w.revive(ctx)
	w.heal()
	w.settle()
	w.rest()
}

// wait lets time pass, and looks at what happens meanwhile.
func (w *world) wait(d time.Duration) {
	if w.isImpossible() {
		w.disturb(d, retryTime)
	}
	for end := time.Now().Add(d); time.Now().Before(end) && !w.guard.hasFailed(); {
		time.Sleep(min(time.Until(end), lookInterval))
		w.look()
	}
}

// isImpossible reports whether something keeps the controllers from doing what they should.
func (w *world) isImpossible() bool {
	return w.server.addresses.size < plenty || len(List[*corev1.ResourceQuota](w.server)) > 0 ||
		slices.ContainsFunc(List[*v1alpha1.LocalService](w.server), func(ls *v1alpha1.LocalService) bool {
			return len(ls.Spec.IPFamilies) > 0 || ls.DeletionTimestamp != nil
		}) ||
		slices.ContainsFunc(List[*corev1.Service](w.server), func(s *corev1.Service) bool {
			return len(s.Finalizers) > 0
		}) || len(w.misfits()) > 0
}

// removeMisfits deletes the Services that somebody has to delete, as the status says.
func (w *world) removeMisfits() {
	for _, service := range w.misfits() {
		_ = w.remove(service)
	}
}

// misfits returns the Services that somebody has to delete.
func (w *world) misfits() []*corev1.Service {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return newSnapshot(w.server).misfits()
}

const (
	// plenty of addresses are enough for all Services.
	plenty = 100
	// settleTime is how long changes may take, however many there are.
	settleTime = 15 * time.Second
	// retryTime is how long after a fault a write may be tried again: the longest backoff twice, because one write may
	// wait for another.
	retryTime = 4*time.Minute + settleTime
)

// disturb records that something goes wrong for the time d, from which the controllers recover within another time.
func (w *world) disturb(d, within time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quietAt = later(w.quietAt, time.Now().Add(d+within))
}

// isSlow reports whether admission is slow in any namespace, or was a while ago.
func (w *world) isSlow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(namespaces, func(name string) bool { return time.Now().Before(w.slowUntil[name]) })
}

// calm records that what lasts until it is ended, such as admission, has ended.
func (w *world) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quietAt = earlier(w.quietAt, time.Now().Add(retryTime))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// delay records that watches are late for the time d, or until everything heals. To wait for caches is no failure, so
// that nothing backs off.
func (w *world) delay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freshAt = later(w.freshAt, time.Now().Add(d+settleTime))
}

// quiet returns when the controllers have recovered from everything that concerns some namespaces.
func (w *world) quiet(of ...string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := later(w.freshAt, w.quietAt)
	for _, namespace := range of {
		at = later(at, w.slowUntil[namespace])
	}
	return at
}

// idle returns for how long nobody but replicas has written what concerns some namespaces.
func (w *world) idle(of ...string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.changed[""]
	for _, namespace := range of {
		at = later(at, w.changed[namespace])
	}
	return time.Since(at)
}

// untilEnded is longer than a history: for what lasts until a step ends it, or until everything heals.
const untilEnded = 24 * time.Hour

// step carries out a step.
func (w *world) step(ctx context.Context, s Step) {
	w.story.add("%s", strings.TrimSpace(strings.SplitN(s.String(), " ", 2)[1]))
	if act := actions[s.Do]; act != nil {
		if err := act(w, s); err != nil {
			w.story.add("  which is refused: %v", err)
		}
		return
	}
	if act := faultActions[s.Do]; act != nil {
		act(ctx, w, s)
		return
	}
	w.guard.fail("a step that is none", "%s", s)
}

// heal ends all faults, and everything that keeps the controllers from reaching the desired state.
func (w *world) heal() {
	w.story.add("everything goes well again")
	w.calm()
	w.guard.calm()
	w.server.Admit(nil)
	w.server.Oppose(nil)
	w.speedUp()
	for _, e := range w.endpoints() {
		e.Heal()
	}
	w.server.mu.Lock()
	w.server.addresses.size, w.server.nodePorts.size, w.server.outage = plenty, plenty, outage{}
	w.server.mu.Unlock()
	for _, name := range namespaces {
		_ = setQuota(w, Step{On: name})
	}
	for _, ls := range List[*v1alpha1.LocalService](w.server) {
		if len(ls.Spec.IPFamilies) > 0 {
			_ = editLS(w, Step{On: keyOf(ls).String(), How: "ipv4"})
		}
	}
	w.removeMisfits()
	for _, service := range List[*corev1.Service](w.server) {
		if len(service.Finalizers) > 0 {
			_ = editService(w, Step{On: keyOf(service).String(), How: "release"})
		}
	}
	w.mu.Lock()
	w.freshAt = time.Now().Add(settleTime)
	w.mu.Unlock()
}

package simulation

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// nearReaction is how old the state that a write is based on may be, if the API server is near: a sync reads, decides,
// asks and writes. Each of some requests takes longer if it is not.
const (
	nearReaction   = 3 * time.Second
	requestsOfSync = 8
)

// guard checks every write of the controllers when it takes place. Observers of the API server read it, and steps
// change it, with the lock of the API server.
type guard struct {
	*story
	server *APIServer

	// excused is until when a write may be based on an older state, and slow until when one may take place later.
	excused, slow time.Time

	// deniedUntil is until when the authorizer last denied requests, and deniedLong is when it last did so for long
	// enough to be reported.
	deniedUntil, deniedLong time.Time
	// failed is when a request that concerns a namespace last failed, "" for what concerns all.
	failed map[string]time.Time

	events []time.Time // of the last minute
	// updates are the last ones of an object by replicas.
	updates map[string][]time.Time
	pods    podLabels

	names map[types.NamespacedName]*demand
	// traces are the last creations and deletions of Services by replicas.
	traces map[types.NamespacedName]trace
	// spoiled is when a user last changed an EndpointSlice, or one of the two Services of mode Hostnames.
	spoiled time.Time
	// edited is when a LocalService was last edited: the previous spec may still be carried out for a while.
	edited  map[types.NamespacedName]time.Time
	gone    map[types.UID]time.Time // LocalServices that are deleted, or being deleted
	owners  map[types.UID]string    // the namespaces of all LocalServices that ever existed
	changed time.Time               // when anything last changed on which demands depend
}

// demand records what has been asked for under a name.
type demand struct {
	signature string // who wants it, and with which immutable fields; "" for nobody
	since     time.Time
	isByNode  bool      // a node was added or removed then
	touched   time.Time // when somebody else last changed it
	stays     time.Time // since when a Service has had to stay; zero if it need not
	form      string    // the last signature that was not ""
}

func newGuard(server *APIServer, story *story) *guard {
	g := &guard{story: story, server: server, pods: newPodLabels(), names: map[types.NamespacedName]*demand{},
		updates: map[string][]time.Time{},
		traces:  map[types.NamespacedName]trace{}, failed: map[string]time.Time{},
		edited: map[types.NamespacedName]time.Time{}, owners: map[types.UID]string{}, gone: map[types.UID]time.Time{}}
	server.Observe(g.look)
	server.refusals = append(server.refusals, g.refused)
	server.requests = append(server.requests, g.requested)
	server.answers = append(server.answers, g.answered)
	return g
}

// excuse allows writes that are based on old caches, or take place late, for a while.
func (g *guard) excuse(old, late time.Duration) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	if old > 0 {
		g.excused = later(g.excused, time.Now().Add(old+settleTime))
	}
	if late > 0 {
		g.slow = later(g.slow, time.Now().Add(late+settleTime))
	}
}

// calm records that what writes are excused for until it is ended, has ended.
func (g *guard) calm() {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.excused = earlier(g.excused, time.Now().Add(retryTime))
}

func (g *guard) isExcused() bool { return time.Now().Before(g.excused) || g.isSlow() }

func (g *guard) isSlow() bool { return time.Now().Before(g.slow) }

// mostEvents is how many there may be in a minute.
const mostEvents = 100

// event checks an event: what it says, and that there are not many more events than changes.
func (g *guard) event(by, reason, note string) {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	g.checkDenial(by, reason+": "+note)
	g.events = slices.DeleteFunc(append(g.events, time.Now()), func(at time.Time) bool {
		return time.Since(at) > time.Minute
	})
	if len(g.events) == mostEvents {
		g.fail("too many events", "%s: %d in a minute", by, mostEvents)
	}
}

// look is called for every write that has taken place, with the lock of the API server held.
func (g *guard) look(w Write) {
	if g.server.admission != nil || g.server.opponent != nil {
		g.failed[""] = time.Now() // What is stored otherwise than it was written counts as failed.
	}
	g.countUpdate(w)
	if isReplica(w.By) {
		g.judge(w)
	}
	switch w.Resource {
	case "localservices", "nodes", "services":
		g.update(w)
	case "pods", "replicasets":
		g.followPods(w)
	}
	isSource := w.Resource == "services" && strings.Contains(w.Key.Name, "-hostnames-")
	isPublished := w.Before != nil && w.Before.GetLabels()[v1alpha1.HostnamesLabelKey] != "" // It may get a selector.
	if w.By == userName && (isSource || isPublished || w.Resource == "endpointslices") {
		g.spoiled = time.Now()
	}
}

const (
	// mostUpdates is how often an object may be updated within updateWindow, beside once for each edit of a LocalService.
	mostUpdates  = 10
	updateWindow = 20 * time.Second
	// undoTime is within what time an update that has to be made again counts as refused.
	undoTime = 2 * time.Minute
)

// countUpdate checks that a replica does not fight against a controller that wants something else.
func (g *guard) countUpdate(w Write) {
	const edits = "edits"
	isEdit := w.Resource == "localservices" && w.By == userName
	if !isEdit && !isReplica(w.By) || w.Verb() != "update" {
		return
	}
	key := w.Resource + " " + w.Key.String()
	if isEdit {
		key = edits
	}
	g.updates[key] = append(g.updates[key], time.Now())
	for _, key := range []string{key, edits} {
		g.updates[key] = slices.DeleteFunc(g.updates[key],
			func(at time.Time) bool { return time.Since(at) > updateWindow })
	}
	isOurs := w.Resource == "services" || w.Resource == "endpointslices"
	if isOurs && g.server.opponent != nil && len(g.updates[key]) > mostUpdates+len(g.updates[edits]) {
		g.fail("a fight", "%s: %d updates of %s in %s", w.By, len(g.updates[key]), key, updateWindow)
	}
}

// isUpdated reports whether a replica has updated an object a short time ago: if somebody changes it now, that may
// count as undone.
func (g *guard) isUpdated(resource string, key types.NamespacedName) bool {
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	last := g.updates[resource+" "+key.String()]
	return len(last) > 0 && time.Since(last[len(last)-1]) <= undoTime
}

// checkRate checks that a replica has not sent many more requests than it had reasons for.
func (g *guard) checkRate(e *Endpoint) {
	const window = time.Minute
	most := 600
	if !g.failed[""].IsZero() {
		// While admission changes what is written, and the answers are lost, each write looks like one of others.
		most *= 2
	}
	requests := e.Requests(time.Time{})
	first := 0
	for i := range requests {
		for requests[i].At.Sub(requests[first].At) > window {
			first++
		}
		if i-first > most {
			kinds := map[string]int{}
			for _, r := range requests[first:i] {
				kinds[r.What]++
			}
			maps.DeleteFunc(kinds, func(_ string, n int) bool { return n < 20 })
			g.fail("too many requests", "%d in a minute, most often %v", i-first, kinds)
			return
		}
	}
}

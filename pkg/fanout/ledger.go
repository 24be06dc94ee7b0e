package fanout

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Ledger remembers between the syncs of a LocalService what a sync of some of its nodes needs to know of all others,
// so that the work an event causes does not grow with the number of nodes. Everything in it follows from the caches:
// a sync of all nodes, with which each LocalService begins, computes it anew. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
	// claims are the nodes of LocalServices that wait for something to become of a Service, by that Service.
	claims map[types.NamespacedName]map[Claim]struct{}
}

// Claim is a node of a LocalService.
type Claim struct {
	LocalService types.NamespacedName
	Node         string
}

type entry struct {
	uid        types.UID
	generation int64

	gaveUp bool             // because nothing that is written will last
	all    bool             // every node is to be looked at
	dirty  sets.Set[string] // nodes to look at

	nodes     sets.Set[string]  // selected nodes when last looked at
	unsettled map[string]Change // what is still to be done or waited for at some of them
	ready     sets.Set[string]  // nodes whose Service has a ready endpoint

	status                *v1alpha1.LocalServiceStatus // last written
	statusResourceVersion string                       // of the LocalService with that status
	statusTime            time.Time                    // when it was written
}

// Scope is what a sync is to look at: all nodes, or some.
type Scope struct {
	All   bool
	Nodes []string
}

// Findings are what a sync has found within its scope.
type Findings struct {
	Scope    Scope
	Selected []string // nodes
	Ready    []string // of those, the ones whose Service has a ready endpoint
	Changes  []Change // what is to be done
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		entries: map[types.NamespacedName]*entry{},
		claims:  map[types.NamespacedName]map[Claim]struct{}{},
	}
}

// MarkAll has the next sync of a LocalService look at every node.
func (l *Ledger) MarkAll(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(key).all = true
}

// MarkNode has the next sync of a LocalService look at a node.
func (l *Ledger) MarkNode(key types.NamespacedName, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry(key).dirty.Insert(node)
}

// Claims are the nodes that a change of a Service may concern although their LocalService does not control it, for
// example because it stands in their way.
func (l *Ledger) Claims(service types.NamespacedName) []Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	var claims []Claim
	for claim := range l.claims[service] {
		claims = append(claims, claim)
	}
	return claims
}

// Take returns what the next sync of a LocalService is to look at, and forgets it.
func (l *Ledger) Take(key types.NamespacedName, ls *v1alpha1.LocalService) Scope {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	scope := Scope{All: e.all || e.uid != ls.UID || e.generation != ls.Generation || e.nodes == nil}
	if !scope.All {
		scope.Nodes = sets.List(e.dirty)
	}
	e.all, e.dirty = false, sets.New[string]()
	return scope
}

// Record remembers what a sync has found.
func (l *Ledger) Record(key types.NamespacedName, ls *v1alpha1.LocalService, found Findings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	if found.Scope.All {
		l.dropClaims(key, e)
		e.uid, e.generation, e.gaveUp = ls.UID, ls.Generation, false
		e.nodes, e.ready, e.unsettled = sets.New[string](), sets.New[string](), map[string]Change{}
	}
	for _, node := range found.Scope.Nodes {
		l.dropClaim(key, node, e.unsettled[node].Name)
		e.nodes.Delete(node)
		e.ready.Delete(node)
		delete(e.unsettled, node)
	}
	e.nodes.Insert(found.Selected...)
	e.ready.Insert(found.Ready...)
	for _, change := range found.Changes {
		if change.Node == "" {
			continue // An orphan is no node's.
		}
		change.Live = nil // Of no use here, and the cache may let it go.
		e.unsettled[change.Node] = change
		l.addClaim(key, change)
	}
}

// GiveUp remembers that nothing is to be written for a LocalService any more, because its namespace is being deleted.
func (l *Ledger) GiveUp(key types.NamespacedName, ls *v1alpha1.LocalService) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	e.uid, e.gaveUp = ls.UID, true
}

// GaveUp says whether nothing is to be written for a LocalService any more.
func (l *Ledger) GaveUp(key types.NamespacedName, ls *v1alpha1.LocalService) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	return e.gaveUp && e.uid == ls.UID
}

// Settle remembers that the change that a node needed has been made.
func (l *Ledger) Settle(key types.NamespacedName, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	l.dropClaim(key, node, e.unsettled[node].Name)
	delete(e.unsettled, node)
}

// Outcome is what is known of all nodes of a LocalService.
func (l *Ledger) Outcome(key types.NamespacedName) Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	o := Outcome{Nodes: e.nodes.Len(), InPlace: e.nodes.Len() - len(e.unsettled), ReadyNodes: e.ready.Len()}
	for _, change := range e.unsettled {
		switch change.Action {
		case Conflict:
			o.Conflicts = append(o.Conflicts, change.Name)
		case Wait:
			o.Waiting++
		}
	}
	slices.Sort(o.Conflicts)
	return o
}

// Forget drops everything about a LocalService that is gone.
func (l *Ledger) Forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		l.dropClaims(key, e)
		delete(l.entries, key)
	}
}

// RecordStatus remembers the status that was written, when, and the resource version that the LocalService has with it.
func (l *Ledger) RecordStatus(key types.NamespacedName, status *v1alpha1.LocalServiceStatus, resourceVersion string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	e.status, e.statusResourceVersion, e.statusTime = status, resourceVersion, at
}

// StatusTime is when the status was written last, the zero time if we have not written it.
func (l *Ledger) StatusTime(key types.NamespacedName) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry(key).statusTime
}

// Status is the status that a LocalService has at the API server as far as known: that of the cache, or the one last
// written if the cache is older than that.
func (l *Ledger) Status(key types.NamespacedName, cached *v1alpha1.LocalService) v1alpha1.LocalServiceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(key)
	if e.status != nil && (e.uid == "" || e.uid == cached.UID) {
		if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, e.statusResourceVersion); err == nil && order < 0 {
			return *e.status
		}
	}
	return cached.Status
}

func (l *Ledger) entry(key types.NamespacedName) *entry {
	e := l.entries[key]
	if e == nil {
		e = &entry{dirty: sets.New[string]()}
		l.entries[key] = e
	}
	return e
}

func (l *Ledger) addClaim(key types.NamespacedName, change Change) {
	service := types.NamespacedName{Namespace: key.Namespace, Name: change.Name}
	if l.claims[service] == nil {
		l.claims[service] = map[Claim]struct{}{}
	}
	l.claims[service][Claim{LocalService: key, Node: change.Node}] = struct{}{}
}

func (l *Ledger) dropClaim(key types.NamespacedName, node, serviceName string) {
	service := types.NamespacedName{Namespace: key.Namespace, Name: serviceName}
	claims := l.claims[service]
	delete(claims, Claim{LocalService: key, Node: node})
	if len(claims) == 0 {
		delete(l.claims, service)
	}
}

func (l *Ledger) dropClaims(key types.NamespacedName, e *entry) {
	for node, change := range e.unsettled {
		l.dropClaim(key, node, change.Name)
	}
}

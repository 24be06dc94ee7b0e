package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// reaction is how long ago what a write rests on may be: a sync reads, decides, asks and writes.
const reaction = 3 * time.Second

// guard looks at every write of the controllers when it takes place.
type guard struct {
	server *APIServer
	story  *story

	mu       sync.Mutex
	failures []Failure
	// excused is until when a write may rest on what was so long ago, and slow until when one may take place so late.
	excused, slow time.Time
	allowed       int // creations and deletions of a name, more than changes ask for

	events []time.Time // of the last minute

	names map[types.NamespacedName]*demand
	// edited is when a LocalService was edited last: what was asked for before may still be done.
	edited  map[types.NamespacedName]time.Time
	gone    map[types.UID]time.Time // LocalServices that are deleted, or being deleted
	owners  map[types.UID]string    // the namespaces of all LocalServices that there have been
	changed time.Time               // when anything was last that is asked for follows from
}

// demand is what has been asked for of a name.
type demand struct {
	signature        string // who wants it, and in which form of those that cannot be changed; "" for nobody
	since            time.Time
	creates, deletes int // that were asked for
	created, deleted int
	// mistaken is how often it was created for nobody, while that could not be known.
	mistaken int
}

// mostMistaken is how often a name may be.
const mostMistaken = 3

func newGuard(server *APIServer, story *story) *guard {
	g := &guard{server: server, story: story, names: map[types.NamespacedName]*demand{},
		edited: map[types.NamespacedName]time.Time{}, owners: map[types.UID]string{}, gone: map[types.UID]time.Time{}}
	server.Observe(g.look)
	return g
}

func (g *guard) fail(kind, format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := Failure{Kind: kind, What: fmt.Sprintf(format, args...)}
	g.failures = append(g.failures, f)
	g.story.add("WRONG: %s: %s", f.Kind, f.What)
}

func (g *guard) hasFailed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.failures) > 0
}

// failure returns the first failure, with the story.
func (g *guard) failure(s *story) *Failure {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failures) == 0 {
		return nil
	}
	f := g.failures[0]
	f.Story = s.String()
	return &f
}

// excuse lets writes rest on old caches for a while, and take place late.
func (g *guard) excuse(old, late time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := time.Now().Add(old + settleTime); old > 0 && at.After(g.excused) {
		g.excused = at
	}
	if at := time.Now().Add(late + settleTime); late > 0 && at.After(g.slow) {
		g.slow = at
	}
}

// count counts an event. There must not be many more than changes.
func (g *guard) count(replica string) {
	g.mu.Lock()
	g.events = slices.DeleteFunc(append(g.events, time.Now()), func(at time.Time) bool {
		return time.Since(at) > time.Minute
	})
	n := len(g.events)
	g.mu.Unlock()
	if n == mostEvents {
		g.fail("too many events", "%s: %d in a minute", replica, n)
	}
}

// mostEvents is how many there may be in a minute.
const mostEvents = 100

// allow lets every name be created and deleted so many times more.
func (g *guard) allow(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed += n
}

func (g *guard) isExcused() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.excused) || time.Now().Before(g.slow)
}

func (g *guard) isSlow() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.slow)
}

// look is called for every write that has taken place, with the lock of the API server held.
func (g *guard) look(w Write) {
	if isReplica(w.By) {
		g.judge(w)
	}
	switch w.Resource {
	case "localservices", "nodes", "services":
		g.update(w)
	}
}

// judge checks that a replica may make a write.
func (g *guard) judge(w Write) {
	switch w.Resource {
	case "leases", "events":
	case "localservices":
		if w.Verb() != "update" || !g.isSameBut(w, func(o Object) {
			o.(*v1alpha1.LocalService).Status =
				v1alpha1.LocalServiceStatus{}
		}) {
			g.fail("more than a status was written", "%s: %s", w.By, &w)
		}
	case "pods":
		g.judgePod(w)
	case "services":
		g.judgeService(w)
	case "endpointslices":
		g.judgeSlice(w)
	default:
		g.fail("what is none of ours was written", "%s: %s", w.By, &w)
	}
}

// isSameBut reports whether an update changes only what without takes away.
func (g *guard) isSameBut(w Write, without func(Object)) bool {
	before, after := w.Before.DeepCopyObject().(Object), w.After.DeepCopyObject().(Object)
	without(before)
	without(after)
	after.SetResourceVersion(before.GetResourceVersion())
	return apiequality.Semantic.DeepEqual(before, after)
}

func (g *guard) judgePod(w Write) {
	isLabel := w.Verb() == "update" && g.isSameBut(w, func(o Object) { delete(o.GetLabels(), rack) })
	if pod, ok := w.After.(*corev1.Pod); !ok || !isLabel ||
		pod.Labels[rack] != naming.NodeLabelValue(pod.Spec.NodeName) {
		g.fail("a pod was changed other than by its node label", "%s: %s", w.By, &w)
	}
}

func (g *guard) judgeService(w Write) {
	d := g.demandOf(w.Key)
	if before, ok := w.Before.(*corev1.Service); ok && !g.isOurs(before) {
		g.fail("a Service of somebody else was changed", "%s: %s", w.By, &w)
	}
	if after, ok := w.After.(*corev1.Service); ok && g.isAsWritten(after) {
		g.checkName(after)
		g.checkOwner(w, after)
	}
	switch w.Verb() {
	case "create":
		if d.signature == "" && (g.isExcused() || time.Since(g.changed) < reaction) && d.mistaken < mostMistaken {
			d.mistaken++
			d.creates++
			d.deletes++
		}
		if d.created++; d.created > d.creates+g.allowed {
			g.fail("a Service was created too often", "%s: %s: %d times instead of %d", w.By, w.Key, d.created,
				d.creates)
		}
		if d.signature == "" && time.Since(g.changed) > reaction && !g.isExcused() {
			g.fail("a Service was created that nobody wants", "%s: %s", w.By, w.Key)
		}
	case "delete":
		if d.deleted++; d.deleted > d.deletes+g.allowed {
			g.fail("a Service was deleted too often", "%s: %s: %d times instead of %d", w.By, w.Key, d.deleted,
				d.deletes)
		}
		service := w.Before.(*corev1.Service)
		ref := metav1.GetControllerOf(service)
		isCurrent := ref != nil && strings.Contains(d.signature, string(ref.UID)+" "+formOfService(service))
		if isCurrent && time.Since(d.since) > reaction && !g.isSlow() {
			g.fail("a Service was deleted that is wanted", "%s: %s", w.By, w.Key)
		}
	}
}

// isAsWritten reports whether a Service is one that the controllers have made what it is: not one that admission has
// changed, that is being deleted, or that was put back as somebody had changed it.
func (g *guard) isAsWritten(service *corev1.Service) bool {
	return len(g.server.admission) == 0 && service.DeletionTimestamp == nil && g.server.addresses.size >= plenty
}

// checkOwner checks that a Service that exists is not made one of a LocalService that has gone: it would be deleted.
func (g *guard) checkOwner(w Write, service *corev1.Service) {
	ref := metav1.GetControllerOf(service)
	if ref == nil {
		return
	}
	if gone, isGone := g.gone[ref.UID]; w.Before != nil && isGone && time.Since(gone) > reaction && !g.isSlow() &&
		metav1.GetControllerOf(w.Before) == nil {
		g.fail("a Service was adopted for a LocalService that is gone", "%s: %s", w.By, w.Key)
	}
}

// isOurs reports whether a Service is one that a LocalService controls, or may adopt.
func (g *guard) isOurs(service *corev1.Service) bool {
	ref := metav1.GetControllerOf(service)
	if ref == nil {
		return service.Labels[v1alpha1.OwnerLabelKey] != "" && service.Spec.Selector[rack] != "" ||
			service.Labels[v1alpha1.HostnamesLabelKey] != ""
	}
	return ref.Kind == v1alpha1.Kind && g.owners[ref.UID] == service.Namespace
}

// checkName checks that a Service that was written selects the pods of the node that it is named after, and no others.
func (g *guard) checkName(service *corev1.Service) {
	ref, node := metav1.GetControllerOf(service), service.Annotations[v1alpha1.NodeAnnotationKey]
	if node == "" || ref == nil {
		return
	}
	if service.Name != naming.ServiceName(ref.Name, node) || service.Spec.Selector[rack] != naming.NodeLabelValue(
		node) {
		g.fail("a name leads to another node", "Service %s of node %s selects %v", service.Name, node,
			service.Spec.Selector)
	}
}

func (g *guard) judgeSlice(w Write) {
	for _, object := range []Object{w.Before, w.After} {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok || slice == nil {
			continue
		}
		if slice.Labels[discoveryv1.LabelManagedBy] == sliceManager && slice.Labels[v1alpha1.HostnamesLabelKey] !=
			v1alpha1.HostnamesPublished {
			g.fail("an EndpointSlice of Kubernetes was changed", "%s: %s", w.By, &w)
		}
		for _, e := range slice.Endpoints {
			if object == w.After && !g.isNameOf(valueOf(e.Hostname), valueOf(e.NodeName)) {
				g.fail("a name leads to another node", "%s: hostname %s on node %s", w.Key, valueOf(e.Hostname),
					valueOf(e.NodeName))
			}
		}
	}
}

func (g *guard) isNameOf(hostname, node string) bool {
	if hostname == naming.Hostname(node) {
		return true
	}
	return hostname == "east" || hostname == "west" || hostname == "north"
}

// checkRate checks that a replica has not asked much more often than there was a reason to.
func (g *guard) checkRate(e *Endpoint) {
	const most, window = 600, time.Minute
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

func toFields(object Object) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	return out
}

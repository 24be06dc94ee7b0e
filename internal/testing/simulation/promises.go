package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// liveness is how long ago a node may have returned whose Service is deleted: nodes are read live before that.
	liveness = 1500 * time.Millisecond
	// settling is how long after the creation of the Service that selects the pods no copy is deleted.
	settling = 30 * time.Second
	// oneRequest is how long the longest request takes without faults.
	oneRequest = 8 * time.Millisecond
)

// trace is the last creation or deletion of a Service by a replica.
type trace struct {
	by  string
	at  time.Time
	uid types.UID // "" for a deletion
}

// refused is called for every write of a replica that the API server has refused without a fault.
func (g *guard) refused(r Refused) {
	last, since := g.traces[r.Key], g.demandOf(r.Key).since
	if r.Resource != "services" || r.Verb != "create" || r.DryRun || last.by != r.By || g.isSlow() {
		return
	}
	switch {
	case apierrors.IsAlreadyExists(r.Err) && isAsMade(r.Stored, last) && isOfSame(r.Sent, r.Stored) &&
		time.Since(last.at) < time.Minute && since.Before(last.at):
		g.fail("a Service was created again", "%s: %s, %s after it was created", r.By, r.Key, time.Since(last.at))
	case apierrors.IsInvalid(r.Err) && last.uid == "" && time.Since(last.at) < g.oneRequest() &&
		last.at.Sub(since) > 3*g.oneRequest(): // It was deleted for what is asked for now.
		g.fail("a Service was deleted whose successor is refused", "%s: %s: %v", r.By, r.Key, r.Err)
	}
}

// isAsMade reports whether an object is the one that a replica created, and not being deleted.
func isAsMade(object Object, made trace) bool {
	return object != nil && object.GetUID() == made.uid && object.GetDeletionTimestamp() == nil
}

// isOfSame reports whether two objects have the same controller.
func isOfSame(a, b Object) bool {
	one, other := metav1.GetControllerOf(a), metav1.GetControllerOf(b)
	return one != nil && other != nil && one.UID == other.UID
}

// follow records what a replica has done to a Service.
func (g *guard) follow(w Write) {
	switch w.Verb() {
	case "create":
		g.traces[w.Key] = trace{by: w.By, at: time.Now(), uid: w.After.GetUID()}
		if g.isSlow() {
			delete(g.traces, w.Key) // The replica may have given up before the answer came: it does not know.
		}
	case "delete":
		g.traces[w.Key] = trace{by: w.By, at: time.Now()}
	}
}

// checkNodePorts checks that a port that stays keeps its node port, because clients know that.
func (g *guard) checkNodePorts(w Write, before, after *corev1.Service) {
	for _, was := range before.Spec.Ports {
		for _, is := range after.Spec.Ports {
			if was.Port == is.Port && was.Protocol == is.Protocol && was.NodePort != 0 && is.NodePort != 0 &&
				was.NodePort != is.NodePort {
				g.fail("a node port was changed", "%s: %s: %d to %d", w.By, w.Key, was.NodePort, is.NodePort)
			}
		}
	}
}

// isPublishedBy reports whether an EndpointSlice of a Service has the address of a pod.
func (s *snapshot) isPublishedBy(service *corev1.Service, pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.slices, func(slice *discoveryv1.EndpointSlice) bool {
		return metav1.IsControlledBy(slice, service) && publishes(slice, pod.Status.PodIP)
	})
}

// checkCopyDeleted checks that no address that answers by a name is removed.
func (g *guard) checkCopyDeleted(w Write, slice *discoveryv1.EndpointSlice) {
	s := newSnapshot(g.server)
	published := s.services[types.NamespacedName{Namespace: slice.Namespace,
		Name: slice.Labels[discoveryv1.LabelServiceName]}]
	if published == nil || published.DeletionTimestamp != nil || !metav1.IsControlledBy(slice, published) {
		return
	}
	ls := s.owner(published)
	if ls == nil || modeOf(ls) != v1alpha1.ModeHostnames || s.isInvalid(ls) || g.isSlow() ||
		time.Since(g.spoiled) < settling {
		return
	}
	edited := time.Since(g.edited[keyOf(ls)])
	if edited < g.reaction() || g.isExcused() && edited < settling {
		return // While a cache lags, a spec may be carried out longer than it lasted.
	}
	for _, e := range slice.Endpoints {
		for _, pod := range s.answering(ls, ptr.Deref(e.NodeName, "")) {
			if slices.Contains(e.Addresses, pod.Status.PodIP) && s.hasName(ls, pod) &&
				!s.isPublishedBy(published, pod) {
				g.fail("an address was taken away that answers", "%s: %s: %s of pod %s", w.By, w.Key,
					pod.Status.PodIP, pod.Name)
			}
		}
	}
}

func (s *snapshot) hasName(ls *v1alpha1.LocalService, pod *corev1.Pod) bool {
	return s.hostnames(ls)[pod.Spec.NodeName] != ""
}

func publishes(slice *discoveryv1.EndpointSlice, address string) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return slices.Contains(e.Addresses, address)
	})
}

// moveAway records how far away the API server is.
func (g *guard) moveAway(distance time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.distance = max(g.distance, distance)
}

func (g *guard) farthest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.distance
}

// reaction returns how old the state that a write is based on may be.
func (g *guard) reaction() time.Duration { return nearReaction + requestsOfSync*g.farthest() }

func (g *guard) oneRequest() time.Duration { return oneRequest + g.farthest() }

// answered is called for every request of a replica that has ended.
func (g *guard) answered(by string, a answered) {
	isRead := a.verb == "get" || a.verb == "list" // A late request may still change the rest of a.
	if !isRead && a.table.name != "leases" && a.took > patience {
		g.fail("a write that hangs is not given up", "%s: %s: after %s", by, a.request, a.took)
	}
	if a.failed {
		g.failed[a.key.Namespace] = time.Now()
	}
}

// remembered is how long a refusal may be reported after the last one.
const remembered = 6 * time.Minute

// rolesKnown is how long permissions may be missing without a report: an API server that has just started knows no
// roles.
const rolesKnown = 5 * time.Second

// deny records that the authorizer denies requests for some time, after a while.
func (g *guard) deny(after, during time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	since := time.Now().Add(after)
	if during >= rolesKnown || since.Sub(g.deniedUntil) < time.Minute {
		g.deniedLong = since.Add(during)
	}
	g.deniedSince, g.deniedUntil = since, since.Add(during)
}

// checkDenial checks that a text that is reported does not say that a permission is missing, unless it has been for a
// while.
func (g *guard) checkDenial(by, text string) {
	if saysDenied(text) && time.Since(g.deniedLong) > remembered {
		g.fail("a permission was reported as missing", "%s: %s", by, text)
	}
}

// saysDenied reports whether a text has the answer of an authorizer.
func saysDenied(text string) bool {
	return strings.Contains(text, accountName) || strings.Contains(text, "ermission") ||
		strings.Contains(text, "ermitted")
}

// checkConditions does so for the conditions of a status that differ from those before.
func (g *guard) checkConditions(w Write) {
	before, _ := w.Before.(*v1alpha1.LocalService)
	after, ok := w.After.(*v1alpha1.LocalService)
	if !ok || before == nil {
		return
	}
	for _, c := range after.Status.Conditions {
		if !slices.ContainsFunc(before.Status.Conditions, func(b metav1.Condition) bool { return b.Message == c.Message }) {
			g.checkDenial(w.By, c.Reason+": "+c.Message)
		}
	}
}

// checkReported checks that no status begins to say that a write failed if none did.
func (g *guard) checkReported(w Write) {
	failed := later(g.failed[""], g.failed[w.Key.Namespace])
	isReported := func(o Object) bool {
		ls, is := o.(*v1alpha1.LocalService)
		return is && slices.ContainsFunc(ls.Status.Conditions,
			func(c metav1.Condition) bool { return c.Reason == v1alpha1.ReasonWriteFailed })
	}
	if isReported(w.After) && !isReported(w.Before) && time.Since(failed) > remembered {
		g.fail("a failure was reported that there was not", "%s: %s", w.By, &w)
	}
}

package simulation

import (
	"regexp"
	"slices"
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

// refused is called for every request of a replica that the API server has refused without a fault.
func (g *guard) refused(r refused) {
	last := g.traces[r.key]
	if r.table.name != "services" || r.verb != "create" || r.isDryRun() || last.by != r.by || g.isSlow() {
		return
	}
	since, stored := g.demandOf(r.key).since, r.table.objects[r.key]
	isAsMade := stored != nil && stored.object.GetUID() == last.uid && stored.object.GetDeletionTimestamp() == nil
	switch {
	case apierrors.IsAlreadyExists(r.err) && isAsMade && isOfSame(r.sent, stored.object) &&
		time.Since(last.at) < time.Minute && since.Before(last.at):
		g.fail("a Service was created again", "%s: %s, %s after it was created", r.by, r.key, time.Since(last.at))
	case apierrors.IsInvalid(r.err) && last.uid == "" && time.Since(last.at) < g.oneRequest() &&
		last.at.Sub(since) > 3*g.oneRequest(): // It was deleted for what is asked for now.
		g.fail("a Service was deleted whose successor is refused", "%s: %s: %v", r.by, r.key, r.err)
	}
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
		return metav1.IsControlledBy(slice, service) && slices.ContainsFunc(slice.Endpoints,
			func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, pod.Status.PodIP) })
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
			if slices.Contains(e.Addresses, pod.Status.PodIP) && s.hostnames(ls)[pod.Spec.NodeName] != "" &&
				!s.isPublishedBy(published, pod) {
				g.fail("an address was taken away that answers", "%s: %s: %s of pod %s", w.By, w.Key,
					pod.Status.PodIP, pod.Name)
			}
		}
	}
}

// reaction returns how old the state that a write is based on may be.
func (g *guard) reaction() time.Duration { return nearReaction + requestsOfSync*g.server.distance }

func (g *guard) oneRequest() time.Duration { return oneRequest + g.server.distance }

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
	g.server.mu.Lock()
	defer g.server.mu.Unlock()
	since := time.Now().Add(after)
	if during >= rolesKnown || since.Sub(g.deniedUntil) < time.Minute {
		g.deniedLong = since.Add(during)
	}
	g.deniedUntil = since.Add(during)
}

// denial matches texts that have the answer of an authorizer.
var denial = regexp.MustCompile(regexp.QuoteMeta(accountName) + "|ermission|ermitted")

// checkDenial checks that a text that is reported does not say that a permission is missing, unless it has been for a
// while.
func (g *guard) checkDenial(by, text string) {
	if denial.MatchString(text) && time.Since(g.deniedLong) > remembered {
		g.fail("a permission was reported as missing", "%s: %s", by, text)
	}
}

// checkConditions checks what a status begins to say: nothing about a permission that is not missing, and that a write
// failed only if one did.
func (g *guard) checkConditions(w Write) {
	before, after := w.Before.(*v1alpha1.LocalService).Status, w.After.(*v1alpha1.LocalService).Status
	says := func(is func(metav1.Condition) bool) bool { return slices.ContainsFunc(before.Conditions, is) }
	for _, c := range after.Conditions {
		if !says(func(b metav1.Condition) bool { return b.Message == c.Message }) {
			g.checkDenial(w.By, c.Reason+": "+c.Message)
		}
		if c.Reason == v1alpha1.ReasonWriteFailed &&
			!says(func(b metav1.Condition) bool { return b.Reason == v1alpha1.ReasonWriteFailed }) &&
			time.Since(later(g.failed[""], g.failed[w.Key.Namespace])) > remembered {
			g.fail("a failure was reported that there was not", "%s: %s", w.By, &w)
		}
	}
}

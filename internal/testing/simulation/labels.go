package simulation

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const (
	// unlabelled is the kind of a problem with the node label of a pod.
	unlabelled = "a pod without its node label"
	// mostPatches is how often a pod may be patched within patchWindow: admission that changes its node label each time
	// is no reason for more.
	mostPatches = 6
	patchWindow = 15 * time.Second
	// relabelTime is how long a node label may take once nothing is in its way: the longest backoff, and a little.
	relabelTime = 2*time.Minute + settleTime
)

// podLabels holds what the guard knows of pods, their ReplicaSets, and their node labels.
type podLabels struct {
	// needed is how many pods each ReplicaSet has had a reason to create, and made how many it has created, by UID.
	needed, made map[types.UID]int
	// passed is when a pod last got another controller, or lost it.
	passed map[types.UID]time.Time
	// read is when a replica last read a ReplicaSet, by the name of the replica and the UID.
	read map[string]time.Time
	// patches are the last patches of a pod by a replica, by the name of the replica and the UID.
	patches map[string][]time.Time
}

func newPodLabels() podLabels {
	return podLabels{needed: map[types.UID]int{}, made: map[types.UID]int{}, passed: map[types.UID]time.Time{},
		read: map[string]time.Time{}, patches: map[string][]time.Time{}}
}

// selectsByLabel reports whether a ReplicaSet selects its pods by their node label.
func selectsByLabel(set *appsv1.ReplicaSet) bool {
	_, is := set.Spec.Selector.MatchLabels[rack]
	return is || slices.ContainsFunc(set.Spec.Selector.MatchExpressions,
		func(r metav1.LabelSelectorRequirement) bool { return r.Key == rack })
}

func isLabelled(pod *corev1.Pod) bool {
	return pod.Labels[rack] == naming.NodeLabelValue(pod.Spec.NodeName)
}

// requested is called for every request of a replica that is about to be carried out.
func (g *guard) requested(by string, r *request) {
	stored := r.table.objects[r.key]
	if stored == nil {
		return
	}
	key := by + string(stored.object.GetUID())
	switch r.verb + " " + r.table.name {
	case "get replicasets":
		g.pods.read[key] = time.Now()
	case "patch pods":
		patches := slices.DeleteFunc(append(g.pods.patches[key], time.Now()),
			func(at time.Time) bool { return time.Since(at) > patchWindow })
		// An answer that was lost, and one that is late, are reasons for another patch. So is each change of a
		// LocalService while the cache of pods lags.
		most := mostPatches
		if g.isExcused() {
			most *= 2
		}
		if len(patches) > most && !g.isSlow() {
			g.fail("a pod was patched too often", "%s: %s: %d times in %s", by, r.key, len(patches), patchWindow)
			patches = nil
		}
		g.pods.patches[key] = patches
	}
}

// followPods counts the pods that ReplicaSets need and create. It does not count as a need that a pod was released: its
// labels change only by what the controllers write.
func (g *guard) followPods(w Write) {
	before, _ := w.Before.(*corev1.Pod)
	after, _ := w.After.(*corev1.Pod)
	switch {
	case w.Resource != "pods":
		if w.After != nil {
			g.pods.needed[w.After.GetUID()] += max(replicasOf(w.After)-replicasOf(w.Before), 0)
		}
	case before == nil:
		if owner := metav1.GetControllerOf(after); owner != nil {
			if g.pods.made[owner.UID]++; g.pods.made[owner.UID] > g.pods.needed[owner.UID] {
				g.fail("a ReplicaSet had to replace a pod", "%s: %d pods instead of %d", owner.Name,
					g.pods.made[owner.UID], g.pods.needed[owner.UID])
			}
		}
	default:
		owner, hasEnded := metav1.GetControllerOf(before), after == nil || !isActive(after)
		if owner != nil && isActive(before) && hasEnded && w.By != managerName {
			g.pods.needed[owner.UID]++
		}
		if after == nil {
			delete(g.pods.passed, before.UID)
		} else if isPassed(before, after) {
			g.pods.passed[before.UID] = time.Now()
		}
	}
}

// isPassed reports whether a pod has got another controller, or lost it.
func isPassed(before, after *corev1.Pod) bool {
	return !slices.EqualFunc(before.OwnerReferences, after.OwnerReferences,
		func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
}

// replicasOf returns the replicas of a ReplicaSet, 0 before it exists.
func replicasOf(set Object) int {
	if set == nil {
		return 0
	}
	return int(*set.(*appsv1.ReplicaSet).Spec.Replicas)
}

// judgePod checks that a replica changes nothing of a pod but its node label, to the right value unless admission sets
// another one, and only where the controller of the pod does not select by it.
func (g *guard) judgePod(w Write) {
	isLabel := w.Verb() == "update" && g.isSameBut(w, func(o Object) {
		delete(o.GetLabels(), rack)
		if g.server.admission != nil {
			o.SetAnnotations(nil)
		}
	})
	pod, ok := w.After.(*corev1.Pod)
	if !ok || !isLabel || !isLabelled(pod) && g.server.admission == nil {
		g.fail("a pod was changed other than by its node label", "%s: %s", w.By, &w)
		return
	}
	before := w.Before.(*corev1.Pod)
	value, has := before.Labels[rack]
	owner := metav1.GetControllerOf(before)
	if !has || owner == nil || value == pod.Labels[rack] || g.hasAsked(w.By, before, owner) {
		return
	}
	g.fail("the node label of a pod was changed, and its controller may select by it", "%s: %s, of %s %s", w.By, &w,
		owner.Kind, owner.Name)
}

// hasAsked reports whether a replica has just read the controller of a pod, which does not select by the node label; or
// could not know yet that the pod has this controller.
func (g *guard) hasAsked(by string, pod *corev1.Pod, owner *metav1.OwnerReference) bool {
	if passed, has := g.pods.passed[pod.UID]; has && (time.Since(passed) < g.reaction() || g.isExcused()) {
		return true
	}
	read, has := g.pods.read[by+string(owner.UID)]
	if !has || time.Since(read) > g.reaction() && !g.isSlow() {
		return false
	}
	set, exists := g.server.owner(pod.Namespace, *owner).(*appsv1.ReplicaSet)
	return !exists || !selectsByLabel(set) // One that has been deleted since cannot replace the pod.
}

// keepsLabel reports whether the node label of a pod is wrong and has to stay, because its controller may select by it.
func (s *snapshot) keepsLabel(pod *corev1.Pod) bool {
	if _, has := pod.Labels[rack]; !has || isLabelled(pod) || metav1.GetControllerOf(pod) == nil {
		return false
	}
	i := slices.IndexFunc(s.sets, func(set *appsv1.ReplicaSet) bool { return metav1.IsControlledBy(pod, set) })
	return i < 0 || selectsByLabel(s.sets[i])
}

// needsLabel reports whether a LocalService needs the node label of a pod.
func (s *snapshot) needsLabel(pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.locals, func(ls *v1alpha1.LocalService) bool {
		return modeOf(ls) == v1alpha1.ModeServices && !s.isInvalid(ls) && selects(ls, pod)
	})
}

// checkPod checks that a pod has its node label if a LocalService needs that. One that has to stay is as somebody else
// has set it.
func (o *oracle) checkPod(pod *corev1.Pod) {
	value := pod.Labels[rack]
	isKept := o.keepsLabel(pod) && (value == ownRack || value == rackByPolicy)
	if o.needsLabel(pod) && isPublished(pod) && !isLabelled(pod) && !isKept {
		o.fail(unlabelled, "%s: %v on %s", pod.Name, pod.Labels, pod.Spec.NodeName)
	}
}

// readsAtRest returns which requests may be made in a time in which nothing happens, and how often: the controller of a
// pod whose node label has to stay is read with the backoff of what is refused.
func (w *world) readsAtRest(d time.Duration) map[string]int {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	s, most := newSnapshot(w.server), map[string]int{}
	for _, pod := range s.pods {
		if s.keepsLabel(pod) {
			most["get replicasets "+pod.Namespace+"/"+metav1.GetControllerOf(pod).Name] += 5 + int(d/(2*time.Minute))
		}
	}
	return most
}

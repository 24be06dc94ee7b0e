package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// RetireAfter is how long the names of the previous mode stay after the new ones answer: DNS servers and clients may
// cache that a name does not exist. 30 seconds is what kubeadm, and most others, set up.
const RetireAfter = 30 * time.Second

// Retirement is how far the Services of the previous mode are from being deleted.
type Retirement struct {
	// Services is their number.
	Services int
	// Unanswered is the number of nodes that only they reach; -1 for not known, because the new names are not complete.
	Unanswered int
	// DueAfter is how long their deletion has to wait, 0 if that depends on something else than time.
	DueAfter time.Duration
}

// retire removes the deletions of the previous mode's Services from a plan until nobody needs them any more: the new
// names reach everything that the old ones reach, and have done so for a while.
func (p *Plan) retire(in *Input) {
	if p.Unselected != nil {
		p.Retirement = Retirement{Services: p.Unselected.Retiring, Unanswered: -1}
		return
	}
	r := Retirement{Services: p.Count(Retire)}
	if r.Services == 0 {
		return
	}
	ls := in.Templates[0].owner
	r.Unanswered = -1
	isInPlace := p.Count(Create, Adopt, Replace, Wait, Conflict) == 0 // What is only to be updated answers.
	hasNames := p.Nodes > 0 && p.Copies.IsComplete()                  // No node may have the groupBy label.
	if isInPlace && (!p.IsHostnames || hasNames) {
		r.Unanswered = p.unanswered(in)
	}
	remaining, known := RemainingRetirement(ls, in.Now)
	isDue := false
	switch {
	case r.Unanswered != 0: // An event will follow.
	case !known:
		r.DueAfter = RetireAfter
	case remaining > 0:
		r.DueAfter = remaining
	default:
		isDue = true
	}
	p.Retirement = r
	// As long as the names are published, the Source keeps them up to date.
	source := ServiceName(ls.Name, Source, "")
	isPublished := in.Names.Published != nil
	p.Changes = p.where(func(change *Change) bool {
		return change.Action != Retire || isDue && !(isPublished && change.Name == source)
	})
}

// RemainingRetirement returns how long the names of the previous mode still have to stay, and whether that is known:
// only once the status of the LocalService reports that the new ones answer.
func RemainingRetirement(ls *v1alpha1.LocalService, now time.Time) (remaining time.Duration, known bool) {
	retiring := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionRetiring)
	if retiring == nil || retiring.Status != metav1.ConditionTrue || retiring.ObservedGeneration != ls.Generation {
		return 0, false
	}
	const precision = time.Second // of times in the API
	return max(retiring.LastTransitionTime.Add(RetireAfter+precision).Sub(now), 0), true
}

// unanswered counts the nodes that a name of the previous mode reaches, and none of the new one.
func (p *Plan) unanswered(in *Input) (n int) {
	for _, node := range in.Nodes {
		name := ServiceName(in.Templates[0].owner.Name, ForNode, node)
		_, exists := in.Owned[name] // EndpointSlices may be left of a Service that is gone.
		byService := exists && in.Ready[name]
		isUpToDate, byHostname := p.Copies.answering[node]
		isLost := byHostname && !byService
		if p.IsHostnames {
			isLost = byService && !isUpToDate && in.Names.Of(node) != ""
		}
		if isLost {
			n++
		}
	}
	return n
}

package plan

import (
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Limits are what an operator allows one plan of a LocalService to do.
type Limits struct {
	// MaxDeleteFraction is the greatest part of its Services, from 0 to 1, that a plan may delete or replace. 1 allows
	// all. It guards against one mistake, such as another nodeSelector; what leaves bit by bit is not held up.
	MaxDeleteFraction float64
	// MaxServicesPerNamespace is the greatest number of Services, of all kinds, that a plan may bring a namespace to.
	// 0 is no limit.
	MaxServicesPerNamespace int
}

// Withheld is what limits have taken out of a plan.
type Withheld struct {
	// Deletes is the number of Services that are not deleted, of Services that there were when that began. It is 0, and
	// Services is not, while they are deleted because that is confirmed.
	Deletes, Services int
	// IsUnsure is true while all changes wait until the caches show what was written, because only then it is known how
	// many deletions there are.
	IsUnsure bool
	// Creates is the number of Services that are not created, because the namespace would have Total.
	Creates, Total int
	// Replaces is the number of Services that are not replaced, because the cluster has only FreeClusterIPs addresses.
	Replaces, FreeClusterIPs int
	// Limits are those that have withheld it.
	Limits Limits
}

// Any reports whether anything was withheld.
func (w *Withheld) Any() bool { return w.Deletes+w.Creates+w.Replaces > 0 }

// GuardsDeletions reports whether there is a limit to what a plan may delete.
func (l Limits) GuardsDeletions() bool { return l.MaxDeleteFraction < 1 }

// Apply takes out of a plan what the limits forbid: all or nothing of a kind, never half a fan-out. It is told how many
// Services the LocalService has, how many its namespace would have if all were created and none deleted, and whether the
// caches show all that was written.
func (l Limits) Apply(plan Plan, ls *v1alpha1.LocalService, owned, total int, isShown bool) (Plan, Withheld) {
	withheld := Withheld{Limits: l}
	deletes, creates := plan.Count(Delete, Replace), plan.Count(Create)
	held := int(ls.Status.HeldServices)
	if held > 0 {
		owned = held // There may be more by now, of which the deletions are a smaller part.
	}
	owned = max(owned, deletes) // Orphans are replaced, too.
	isTooMany := float64(deletes) > l.MaxDeleteFraction*float64(owned)
	isConfirmed := ls.Annotations[v1alpha1.AllowDeletionAnnotationKey] == "true"
	switch {
	case !l.GuardsDeletions():
	case !isShown && deletes+plan.Outdated+held > 0:
		// There may be more deletions than these. Of more Services they would be a smaller part.
		withheld.IsUnsure = true
		if held > 0 {
			withheld.Deletes, withheld.Services = deletes, held
		}
	case isTooMany:
		withheld.Services = owned // also while it is confirmed, which may be taken back
		if !isConfirmed {
			withheld.Deletes = deletes
		}
	}
	if creates > 0 && l.MaxServicesPerNamespace > 0 && total > l.MaxServicesPerNamespace {
		withheld.Creates, withheld.Total = creates, total
	}
	plan.Changes = plan.With(func(action Action) bool {
		isDelete := action == Delete || action == Replace
		return !withheld.IsUnsure && !(isDelete && withheld.Deletes > 0 || action == Create && withheld.Creates > 0)
	})
	return plan, withheld
}

// HoldReplacements takes the replacements out of a plan where fewer addresses are free than are needed: some of those
// Services would be deleted, and their successors refused. A dry run does not tell, as it allocates nothing.
func (w *Withheld) HoldReplacements(plan Plan, c *Capacity) Plan {
	if c.FreeClusterIPs < 0 || c.NeededClusterIPs <= c.FreeClusterIPs {
		return plan
	}
	w.Replaces, w.FreeClusterIPs = plan.Count(Replace), c.FreeClusterIPs
	plan.Changes = plan.With(func(action Action) bool { return action != Replace })
	return plan
}

// IsMassDeletion reports whether a plan deletes so many of a LocalService's Services that it may be a mistake, and
// should be announced: most of them, and more than one.
func IsMassDeletion(plan Plan, owned int) bool {
	deletes := plan.Count(Delete)
	return deletes > 1 && 2*deletes > owned
}

// Capacity is how many Services there are to be, with all that a LocalService wants, and how many there can be.
type Capacity struct {
	InCluster, InNamespace, ClusterIPsInNamespace int
	// NeededClusterIPs is the number of addresses that the LocalService still needs, and FreeClusterIPs that of those
	// that the cluster has left, -1 if that is not known.
	NeededClusterIPs, FreeClusterIPs int
	// IsPartial is set where only some namespaces are watched: in the cluster there may be more Services, and fewer
	// free addresses, than is known.
	IsPartial bool
}

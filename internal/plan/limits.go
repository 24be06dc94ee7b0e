package plan

// Withheld is what limits have taken out of a plan.
type Withheld struct {
	// Replaces is the number of Services that are not replaced, because the cluster has only FreeClusterIPs addresses.
	Replaces, FreeClusterIPs int
}

// Any reports whether anything was withheld.
func (w *Withheld) Any() bool { return w.Replaces > 0 }

// HoldReplacements takes the replacements out of a plan where fewer addresses are free than are needed: some of those
// Services would be deleted, and their successors refused. A dry run does not tell, as it allocates nothing.
func HoldReplacements(plan Plan, c *Capacity) (Plan, Withheld) {
	if c.FreeClusterIPs < 0 || c.NeededClusterIPs <= c.FreeClusterIPs {
		return plan, Withheld{}
	}
	withheld := Withheld{Replaces: plan.Count(Replace), FreeClusterIPs: c.FreeClusterIPs}
	plan.Changes = plan.With(func(action Action) bool { return action != Replace })
	return plan, withheld
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

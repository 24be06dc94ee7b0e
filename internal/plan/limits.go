package plan

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

package plan

// IsMassDeletion reports whether a plan deletes so many of a LocalService's Services that it may be a mistake, and
// should be announced: most of them, and more than one.
func (p *Plan) IsMassDeletion() bool {
	deletes := p.Count(Delete)
	return deletes > 1 && 2*deletes > p.Owned
}

// Capacity is how many Services there are to be, with all that a LocalService wants.
type Capacity struct {
	InCluster, InNamespace, ClusterIPsInNamespace int
	// IsPartial is set where only some namespaces are watched: in the cluster there may be more Services than is known.
	IsPartial bool
}

package plan

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// IsMassDeletion reports whether a plan deletes more than one, and most, of a LocalService's Services: that may be a
// mistake, and is announced.
func (p *Plan) IsMassDeletion() bool {
	deletes := p.Count(Delete)
	return deletes > 1 && 2*deletes > p.Owned
}

// Capacity is how many Services there will be, with all that a LocalService wants.
type Capacity struct {
	InCluster, InNamespace, ClusterIPsInNamespace int
	// IsPartial is set if only some namespaces are watched: the cluster may have more Services than InCluster.
	IsPartial bool
}

// countServices counts the Services for the condition NearCapacity. With 500,000 Services this takes 30 ms, ten times
// the rest of the plan, so it is skipped if no Service changes, the status has their number, and the condition was
// False.
func (p *Plan) countServices(in *Input) {
	reported := in.localService().Status
	if in.Capacity == nil || len(p.Changes) == 0 && int(reported.Services) == p.InPlace &&
		meta.IsStatusConditionFalse(reported.Conditions, v1alpha1.ConditionNearCapacity) {
		return
	}
	p.Capacity = new(in.Capacity(p.Count(Create) - p.Count(Delete, Retire)))
}

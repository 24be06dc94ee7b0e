package plan

import (
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Capacity is how many Services the LocalServices of a cluster have. Other Services do not count.
type Capacity struct {
	InCluster, InNamespace int
	// ClusterIPsInNamespace is the number of Services with a cluster IP, 0 if the LocalService of the plan makes none.
	ClusterIPsInNamespace int
}

// wantedServices returns how many Services a LocalService wants or keeps, according to its status. status.services
// alone would be too few while Services are created or changed.
func wantedServices(ls *v1alpha1.LocalService) int {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return int(ls.Status.Services)
	}
	return int(max(ls.Status.Services, ls.Status.Nodes))
}

// capacity counts the Services for the condition NearCapacity: those of the plan's LocalService as they will be, and
// those of all others by their status. To count the Services themselves would take time for each of them in every sync.
func (p *Plan) capacity(in *Input) (out Capacity) {
	planned := in.localService()
	count := func(ls *v1alpha1.LocalService, services int) {
		out.InCluster += services
		if ls.Namespace != planned.Namespace {
			return
		}
		out.InNamespace += services
		if HasClusterIPs(ls) && HasClusterIPs(planned) {
			out.ClusterIPsInNamespace += services
		}
	}
	count(planned, p.Owned+p.Count(Create, Adopt)-p.Count(Delete))
	for ls := range in.LocalServices {
		if ls.UID != planned.UID {
			count(ls, wantedServices(ls))
		}
	}
	return out
}

package status

import (
	"fmt"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// MassDeletion returns the note of the event before a plan deletes more than one, and most, of a LocalService's
// Services, which may be a mistake; "" if there is none. While a deletion goes on, or is tried again, the status does
// not count the Services and the nodes any more that are the difference, so it is not announced again.
func MassDeletion(ls *v1alpha1.LocalService, p *plan.Plan) string {
	deletes := p.Count(plan.Delete)
	stillCounted := max(int(ls.Status.Services)-p.InPlace, int(ls.Status.Nodes)-p.Nodes)
	wasAnnounced := ls.Status.ObservedGeneration == ls.Generation && 2*stillCounted <= p.Owned
	if deletes < 2 || 2*deletes <= p.Owned || wasAnnounced {
		return ""
	}
	return fmt.Sprintf("About to delete %d of %d Services, which no selected node wants any more", deletes, p.Owned)
}

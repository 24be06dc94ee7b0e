package writer

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// delete deletes a Service that no node wants, once the API server has confirmed that: the cache of nodes may lag
// behind that of Services. It deletes the version that the plan has seen: a Service that was changed since may belong
// to another object. It first checks whether the plan is still wanted, because the confirmation may have taken time.
func (t *turn) delete(ctx context.Context, change *plan.Change) error {
	labels, err := t.nodeLabels(ctx, change.Node)
	if err != nil {
		return err
	}
	if labels != nil && (change.IfNodeGone || plan.Wants(t.ls, change.Node, labels, change.Name)) {
		return staleError("its node %s exists", change.Node)
	}
	if err := t.checkWanted(); err != nil {
		return err
	}
	uid, version := change.Current.UID, change.Current.GetResourceVersion()
	return t.client().Delete(ctx, change.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

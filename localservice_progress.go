package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// progressInterval is how often at most the status tells how far a long fan-out has come: after progressServices
	// Services, or with fewer after slowProgressInterval.
	progressInterval     = writer.NumbersInterval
	slowProgressInterval = 5 * time.Second
	progressServices     = 200
	// replanInterval is how long a plan is carried out at least before it is worth looking whether other nodes are
	// selected by now, which makes it worth a new one.
	replanInterval = 500 * time.Millisecond
)

// announce tells, before anything is written, what somebody may not have meant.
func (c *localServiceController) announce(ctx context.Context, ls *v1alpha1.LocalService, p *plan.Plan,
	report status.Report, owned int) {
	if plan.IsMassDeletion(*p, owned) {
		c.recorder.Record(ls, corev1.EventTypeWarning, eventDeletingServices,
			fmt.Sprintf("About to delete %d of %d Services, which no selected node wants any more",
				p.Count(plan.Delete), owned))
	}
	told := meta.IsStatusConditionTrue(ls.Status.Conditions, v1alpha1.ConditionNearCapacity)
	if status.IsNearCapacity(&report.Capacity) && !told && p.Count(plan.Create) > 0 {
		c.tellProgress(ctx, ls, report)
	}
}

// beforeEachWrite returns what is called before each write of a plan: it stops those of a plan that is not right any
// more, and now and then tells how far they have come.
func (c *localServiceController) beforeEachWrite(ctx context.Context, ls *v1alpha1.LocalService, report status.Report,
	nodes []string, nodeChanges int64) func(int) error {
	inPlace, doneTold := report.InPlace, 0
	looked := c.clock.Now()
	told := looked
	return func(done int) error {
		if isProgress(done-doneTold, c.clock.Since(told)) {
			report.InPlace = inPlace + done
			isQuick := c.tellProgress(ctx, ls, report)
			if told, doneTold = c.clock.Now(), done; !isQuick {
				told = told.Add(writer.Timeout) // The next one may hang, too, and Services wait for it.
			}
		}
		// Whatever takes its time comes before this.
		if err := c.isOutdated(ls); err != nil {
			return err
		}
		if now := c.clock.Now(); now.Sub(looked) >= replanInterval {
			changes := c.nodeChanges.Load()
			// Some node has changed: that need not be one that is, or was, selected.
			if changes != nodeChanges && !c.caches.Nodes.Selected(ls).IsOf(nodes) {
				return errNodesChanged
			}
			if c.hostnames.isBehind(ls, c.hostnames.look(ls)) {
				return errPodsChanged
			}
			looked, nodeChanges = now, changes
		}
		return nil
	}
}

// isProgress reports whether what has been written in a time is worth a status, which costs the API server as much as
// several Services.
func isProgress(written int, in time.Duration) bool {
	return written >= progressServices && in >= progressInterval || written > 0 && in >= slowProgressInterval
}

// tellProgress tells in the status how far a sync has come, unless that takes long, and reports whether it was quick.
func (c *localServiceController) tellProgress(ctx context.Context, ls *v1alpha1.LocalService,
	report status.Report) (isQuick bool) {
	report.Writing = true
	err := c.statuses.WriteProgress(ctx, ls, report)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot tell the progress", "localService", klog.KObj(ls), "err", err)
	}
	return err == nil || reconcile.IsStale(err)
}

package writer

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
)

// Outcome says what became of the changes of a plan.
type Outcome struct {
	// Made are the names of the Services whose changes were made, by action.
	Made map[plan.Action][]string
	// Refused are the writes that the API server refused, or did not answer in time: now, or before and not due yet. Of
	// those that were put off because others were refused, it has one at most.
	Refused []error
	// Contested are the names of the fields that the API server stored differently: now, or before and not due yet.
	Contested sets.Set[string]
	// RetryAfter is how long the first of the refused writes has to wait, 0 if there are none.
	RetryAfter time.Duration
	// Failed are the writes that failed for reasons that may pass in a moment, and Stale those that failed because a
	// cache was behind: the next plan, from a newer cache, will be right.
	Failed, Stale []error
	// More is true if the turn ended before all changes were tried.
	More bool
	// GaveUp is true if the writes of an action were given up, because too many had failed in a row: a next turn may
	// make nothing.
	GaveUp bool
	// Stopped is why no more changes were tried: the error of the context or of the live read, ErrNamespaceTerminating,
	// or one that is Stale, because the LocalService was changed.
	Stopped error
}

// Stored returns how many Services were created or changed, and not deleted.
func (o *Outcome) Stored() (n int) {
	for action, names := range o.Made {
		if action != plan.Delete {
			n += len(names)
		}
	}
	return n
}

// HasNextTurn reports whether the rest is to be made at once. After a turn that made nothing, the backoff decides.
func (o *Outcome) HasNextTurn() bool { return o.More && len(o.Made) > 0 }

// IsComplete reports whether all changes were made, apart from contested fields.
func (o *Outcome) IsComplete() bool { return o.Stopped == nil && !o.More && !o.hasFailed() }

// IsBehind reports whether nothing was made, and all that failed was not asked for, because a live read has shown that a
// cache is behind.
func (o *Outcome) IsBehind() bool {
	isAnswer := func(err error) bool { return !reconcile.IsStale(err) }
	return len(o.Stale) > 0 && len(o.Made)+len(o.Refused)+len(o.Failed)+len(o.Contested) == 0 &&
		!slices.ContainsFunc(o.Stale, isAnswer)
}

func (o *Outcome) hasFailed() bool { return len(o.Refused)+len(o.Failed)+len(o.Stale) > 0 }

// Err returns the error of a sync, nil unless a write failed that may soon succeed, or the turn made nothing of more.
// Refusals have their own backoff.
func (o *Outcome) Err(key types.NamespacedName) error {
	switch {
	case len(o.Failed) > 0:
		return fmt.Errorf("fan out LocalService %s: %s", key, status.Summarize(o.Failed))
	case len(o.Stale) > 0:
		return reconcile.Stale(fmt.Errorf("fan out LocalService %s: %s", key, status.Summarize(o.Stale)))
	case o.More && !o.HasNextTurn():
		return reconcile.Stale(fmt.Errorf("fan out LocalService %s: nothing was made in this turn", key))
	}
	return nil
}

package writer

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/status"
)

// concludeTurn decides what follows from a turn: another turn at once, a retry with backoff, or nothing.
func (t *turn) concludeTurn() {
	out, hasMade := &t.out, len(t.out.Made) > 0
	switch {
	case out.Stopped != nil:
		return
	case out.More && hasMade:
		out.Failed, out.Stale = nil, nil // The next turn tries them again.
		return
	case out.More && len(out.Failed)+len(out.Stale) == 0:
		out.Stale = append(out.Stale, staleError("nothing was made in this turn"))
	}
	out.More = false
	isFromAPI := func(err error) bool { return !errors.Is(err, errStale) }
	if !hasMade && len(out.Stale) > 0 && len(out.Refused)+len(out.Failed) == 0 &&
		!slices.ContainsFunc(out.Stale, isFromAPI) {
		// Live reads have shown that a cache lags. Nothing was written, so there is nothing to report.
		out.Stopped = Err(out, cache.KeyOf(t.ls))
	}
}

// Err returns the error of a sync: nil unless a write failed that may soon succeed. Refusals have their own backoff.
func Err(o *status.Outcome, key types.NamespacedName) error {
	errs := append(slices.Clip(o.Failed), o.Stale...)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("fan out LocalService %s: %s", key, status.Summarize(errs))
}

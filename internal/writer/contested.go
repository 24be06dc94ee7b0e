package writer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// contestedError has the names of fields that the API server returned differently than they were written: an admission
// webhook or policy sets them. They count as refused.
type contestedError struct{ fields []string }

func (e *contestedError) Error() string { return "something else sets " + strings.Join(e.fields, ", ") }

// contestedFields is the name of the attempt to write fields that were contested.
const contestedFields = "fields"

// ContestedFields returns the names of the fields of a LocalService's Services that are left as something else sets
// them, sorted. Otherwise every sync would write them.
func (s *Services) ContestedFields(ls *v1alpha1.LocalService) []string {
	attempt := attempt(ls, contestedFields)
	refusal, _ := s.Refusals.Get(attempt)
	e, isContested := refusal.Err.(*contestedError)
	if !isContested || s.Refusals.RetryAfter(attempt) == 0 {
		return nil
	}
	return e.fields
}

// isLasting looks at how a change was stored, and reports whether it had an effect. Fields that admission has set to
// something else are contested if the change had no effect, or if that happens to the Service for the second time. The
// first time it is only remembered, so that a change that admission undoes in part is still made to all Services.
func (w *execution) isLasting(change *plan.Change, stored *corev1.Service) bool {
	fields := change.Template.Mismatches(stored, change.Node)
	if len(fields) == 0 {
		return true
	}
	switch change.Action {
	case plan.Replace: // Another one would delete what serves again.
		w.contest(fields)
		return true
	case plan.Update, plan.Adopt:
		if w.isStoredOtherwise(change) || change.Template.IsUnchanged(change.Current, stored) {
			w.contest(fields)
			return false
		}
		w.Refusals.AddContested(w.storedOtherwise(change), &contestedError{fields})
	}
	w.out.Stale = append(w.out.Stale, &contestedError{fields})
	return true
}

// storedOtherwise identifies a change of a Service that was stored differently than it was written.
func (w *execution) storedOtherwise(change *plan.Change) Attempt {
	return attempt(w.ls, change.Name+" was stored otherwise")
}

// isStoredOtherwise reports whether a change was made before, and was stored differently than it was written.
func (w *execution) isStoredOtherwise(change *plan.Change) bool {
	if change.Action != plan.Update && change.Action != plan.Adopt {
		return false // isLasting remembers no others.
	}
	_, isRemembered := w.Refusals.Get(w.storedOtherwise(change))
	return isRemembered
}

// contest records that fields are contested: the remaining changes are planned again, without them. Missing Services
// are still created.
func (w *execution) contest(fields []string) {
	known := w.ContestedFields(w.ls)
	err := &contestedError{sets.List(sets.New(known...).Insert(fields...))}
	if len(err.fields) > len(known) {
		w.Refusals.AddContested(attempt(w.ls, contestedFields), err)
	}
	w.contested = reconcile.Stale(err)
}

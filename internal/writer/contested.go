package writer

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// contestedError has the names of fields that the API server stored differently than they were written: an admission
// webhook or policy sets them. It counts as a refusal.
type contestedError struct{ fields []string }

func (e *contestedError) Error() string { return "something else sets " + strings.Join(e.fields, ", ") }

func isContested(err error) bool {
	_, is := errors.AsType[*contestedError](err)
	return is
}

// made records a change that the API server accepted. Its error is a contestedError if the change had no effect, or was
// a replacement that would have to be repeated. What else was stored differently is planned again: that it was in an
// update counts as the refusal of the next one, but admission may act on creations only.
func (w *execution) made(change *plan.Change, stored *corev1.Service) error {
	var fields []string
	if stored != nil {
		fields = change.Template.Mismatches(stored, change.Node)
	}
	contested := &contestedError{fields}
	isUpdate := change.Action == plan.Update || change.Action == plan.Adopt
	if len(fields) > 0 && isUpdate && change.Template.IsUnchanged(change.Current, stored) {
		return contested
	}
	w.Refusals.Remove(w.attempt(change))
	w.out.Made[change.Action] = append(w.out.Made[change.Action], change.Name)
	switch {
	case len(fields) == 0:
	case change.Action == plan.Replace && change.Template.NeedsReplacement(stored, change.Node):
		return contested
	case change.Action == plan.Update:
		next := *change
		next.Fields = fields
		w.refuse(&next, contested)
	default:
		w.out.More = true
	}
	return nil
}

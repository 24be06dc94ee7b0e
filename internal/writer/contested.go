package writer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// contestedError has the names of fields that the API server stored differently than they were written: an admission
// webhook or policy sets them. It counts as a refusal.
type contestedError struct{ fields []string }

func (e *contestedError) Error() string { return "something else sets " + strings.Join(e.fields, ", ") }

// made records a change that the API server accepted, and looks at how it was stored:
//   - as it was written: it is made;
//   - differently, and without any effect, or so that it would have to be replaced again: it is refused;
//   - differently, but with some effect: it is made, and the update of the fields that still differ is refused;
//   - differently, after a creation: it is made, and updated in the next turn, as admission may act on creations only.
func (w *execution) made(change *plan.Change, stored *corev1.Service) error {
	var fields []string
	needsReplacement := false
	if stored != nil {
		fields, needsReplacement = change.Template.Mismatches(stored, change.Node)
	}
	err := &contestedError{fields}
	isUpdate := change.Action == plan.Update || change.Action == plan.Adopt
	switch {
	case len(fields) == 0:
	case isUpdate && change.Template.IsUnchanged(change.Current, stored),
		change.Action == plan.Replace && needsReplacement:
		return err
	case isUpdate:
		next := *change
		next.Fields = fields
		w.refuse(&next, w.failure(&next, err))
	default:
		w.out.More = true
	}
	w.Refusals.Remove(w.attempt(change))
	w.out.Made[change.Action] = append(w.out.Made[change.Action], change.Name)
	return nil
}

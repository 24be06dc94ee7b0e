package metrics

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestResult: the reason is one that the API has. An admission webhook may give any reason, such as a sentence that
// names the object, and each would be a time series for ever.
func TestResult(t *testing.T) {
	sentence := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: "Service demo-node1 has no cost center"}}
	for want, err := range map[string]error{
		"success":       nil,
		"error":         errors.New("no answer"),
		"Forbidden":     apierrors.NewForbidden(schema.GroupResource{}, "x", nil),
		"AlreadyExists": apierrors.NewAlreadyExists(schema.GroupResource{}, "x"),
		"InternalError": apierrors.NewInternalError(errors.New("no")),
		"other":         sentence,
	} {
		if got := Result(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

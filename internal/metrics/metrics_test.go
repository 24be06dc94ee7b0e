package metrics

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
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

// TestObserveSince: a wait begins with the last of what it needed. What was needed long ago was no wait. Times of a
// clock that is ahead count as none.
func TestObserveSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := histogram("test_seconds", "Test.")
		registry := metrics.NewKubeRegistry()
		registry.MustRegister(h)
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		ObserveSince(h, ago(7*time.Second))
		ObserveSince(h, ago(time.Hour), ago(3*time.Second))
		ObserveSince(h, ago(20*time.Second), ago(time.Hour))
		ObserveSince(h, ago(time.Hour))
		ObserveSince(h, ago(newFor), time.Time{})
		ObserveSince(h, ago(-time.Minute))
		got := gather(t, registry)[0].GetMetric()[0].GetHistogram()
		if got.GetSampleCount() != 4 || got.GetSampleSum() != 7+3+20 {
			t.Errorf("%d waits, %g s; want 4, 30 s", got.GetSampleCount(), got.GetSampleSum())
		}
	})
}

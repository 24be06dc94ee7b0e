// Package metrics are the controllers' own metrics, beside those of work queues and API requests.
package metrics

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "localservice"

var (
	// ServiceWrites counts writes of Services, by action (Create, Adopt, Update, Replace, Delete) and result.
	ServiceWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "service_writes_total",
		Help:           "Writes of Services, by action and result.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"action", "result"})
	// StatusWrites counts writes of the status of LocalServices, by result.
	StatusWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "status_writes_total",
		Help:           "Writes of the status of LocalServices, by result.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	// PodLabelWrites counts writes of the node label to pods, by result.
	PodLabelWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "pod_label_writes_total",
		Help:           "Writes of the node label to pods, by result.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
)

// Register makes the metrics visible.
var Register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(ServiceWrites, StatusWrites, PodLabelWrites)
})

// Result is the value of the label result: success, or the reason that the API server gave.
func Result(err error) string {
	if err == nil {
		return "success"
	}
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return "error"
}

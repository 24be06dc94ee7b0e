// Package metrics has the controllers' own metrics, in addition to those of work queues and API requests.
package metrics

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// success is the value of the label result for a write that succeeded.
const success = "success"

var (
	// ServiceWrites counts writes of Services.
	ServiceWrites = counter("service_writes_total",
		"Writes of Services, by action (Create, Adopt, Update, Replace, Delete) and result (success, or the "+
			"API server's reason).", "action", "result")
	// SliceWrites counts writes of EndpointSlices for mode Hostnames.
	SliceWrites = counter("endpointslice_writes_total",
		"Writes of EndpointSlices for mode Hostnames, by action (Create, Update, Delete) and result.",
		"action", "result")
	// StatusWrites counts writes of the status of LocalServices, by result.
	StatusWrites = counter("status_writes_total", "Writes of the status of LocalServices, by result.", "result")
	// PodLabelWrites counts writes of the node label to pods, by result.
	PodLabelWrites = counter("pod_label_writes_total", "Writes of the node label to pods, by result.", "result")
	// NodeFanout measures the Waits of LocalServices for their new nodes.
	NodeFanout = histogram("node_fanout_seconds",
		"Time from the event that a LocalService of mode Services selects another node until all of its Services are "+
			"written.", []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300})
	// PodLabel measures the Waits of pods for their label.
	PodLabel = histogram("pod_label_seconds",
		"Time from the event that a pod has been scheduled until its node label is written.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60})
	// PodsLabelledAtBinding is 1 while an admission policy labels pods in the write that binds them, 0 while the
	// controller does. It is also 0 before the first pod is scheduled.
	PodsLabelledAtBinding = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "localservice_pods_labelled_at_binding",
		Help:           "1 if the pod that was scheduled last had its node label from the beginning.",
		StabilityLevel: metrics.ALPHA,
	})
)

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "localservice_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func histogram(name, help string, buckets []float64) *metrics.Histogram {
	return metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "localservice_" + name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
	})
}

// Register makes the metrics visible to the registry of the program. It is called once.
func Register(collector *Collector) {
	legacyregistry.MustRegister(own...)
	legacyregistry.CustomMustRegister(collector)
	begin()
}

var own = []metrics.Registerable{ServiceWrites, SliceWrites, StatusWrites, PodLabelWrites, NodeFanout, PodLabel,
	PodsLabelledAtBinding}

// begin starts the counters of successes at 0: the first event of a series that starts with it would not count as an
// increase.
func begin() {
	for _, action := range []string{"Create", "Adopt", "Update", "Replace", "Delete"} {
		ServiceWrites.WithLabelValues(action, success)
	}
	for _, action := range []string{"Create", "Update", "Delete"} {
		SliceWrites.WithLabelValues(action, success)
	}
	StatusWrites.WithLabelValues(success)
	PodLabelWrites.WithLabelValues(success)
}

// reasons are those that the API server itself gives. An admission webhook may give any other, and each would be a time
// series.
var reasons = sets.New(metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
	metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonInvalid,
	metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonTooManyRequests,
	metav1.StatusReasonInternalError, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonServiceUnavailable)

// Result returns the value of the label result: success, the reason that the API server gave, other for reasons that
// are not its own, or error if it gave none.
func Result(err error) string {
	if err == nil {
		return success
	}
	reason := apierrors.ReasonForError(err)
	switch {
	case reasons.Has(reason):
		return string(reason)
	case reason != "":
		return other
	}
	return "error"
}

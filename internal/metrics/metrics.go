// Package metrics defines the controllers' own metrics, in addition to those of work queues and API requests.
package metrics

import (
	"slices"
	"time"

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
		"Writes of Services, by action (Create, Adopt, Update, Delete) and result (success, or the "+
			"API server's reason).", "action", "result")
	// SliceWrites counts writes of EndpointSlices for mode Hostnames.
	SliceWrites = counter("endpointslice_writes_total",
		"Writes of EndpointSlices for mode Hostnames, by action (Create, Update, Delete) and result.",
		"action", "result")
	// StatusWrites counts writes of the status of LocalServices, by result.
	StatusWrites = counter("status_writes_total", "Writes of the status of LocalServices, by result.", "result")
	// PodLabelWrites counts writes of the node label to pods, by result.
	PodLabelWrites = counter("pod_label_writes_total", "Writes of the node label to pods, by result.", "result")
	// Unguarded counts the resources for which the guard is not in force.
	Unguarded = metrics.NewGauge(&metrics.GaugeOpts{Name: "localservice_unguarded_resources", Help: "Resources (pods, " +
		"services, endpointslices) that the guard does not protect, as the leader has found out, at most an hour ago.",
		StabilityLevel: metrics.ALPHA})
	// NodeFanout measures, by ObserveSince, how long Services of nodes wait to be created.
	NodeFanout = histogram("node_fanout_seconds",
		"Time from the creation of a node, or of the LocalService if that is newer, until the node's Service is "+
			"created. Not counted after ten minutes: such a Service is most likely recreated.")
	// PodLabel measures, by ObserveSince, how long pods wait for their label.
	PodLabel = histogram("pod_label_seconds",
		"Time from the scheduling of a pod, or from the creation of a LocalService that selects it if that is newer, "+
			"until the node label is written. Not counted after ten minutes: such a label is most likely corrected.")
)

// own holds the metrics of what happens.
var own = []metrics.Registerable{Unguarded}

func counter(name, help string, labels ...string) *metrics.CounterVec {
	c := metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "localservice_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
	own = append(own, c)
	return c
}

// histogram returns a histogram of times in seconds. Times in the API have no fractions of a second, so times up to a
// second are rounding errors.
func histogram(name, help string) *metrics.Histogram {
	h := metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "localservice_" + name, Help: help, Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, newFor.Seconds()},
		StabilityLevel: metrics.ALPHA,
	})
	own = append(own, h)
	return h
}

// newFor limits how long something counts as new.
const newFor = 10 * time.Minute

// ObserveSince records how long something new has waited since the last of its prerequisites happened. Those times
// are in the API, so nothing has to be remembered. If the last one is long ago, this is most likely a repair, which
// is not recorded.
func ObserveSince(histogram *metrics.Histogram, happened ...time.Time) {
	waited := time.Since(slices.MaxFunc(happened, time.Time.Compare))
	if waited < newFor {
		histogram.Observe(max(0, waited.Seconds())) // The clock of the API server may be ahead.
	}
}

// Register registers the metrics with the registry of the program. It must be called only once.
func Register(collector *Collector) {
	legacyregistry.MustRegister(own...)
	legacyregistry.CustomMustRegister(collector)
	// The counters of successes start at 0. Otherwise, the first event of a series would not count as an increase.
	for _, action := range []string{"Create", "Adopt", "Update", "Delete"} {
		ServiceWrites.WithLabelValues(action, success)
	}
	for _, action := range []string{"Create", "Update", "Delete"} {
		SliceWrites.WithLabelValues(action, success)
	}
	StatusWrites.WithLabelValues(success)
	PodLabelWrites.WithLabelValues(success)
}

// reasons lists the reasons that the API server itself gives. An admission webhook may give any other, and each would
// be a time series.
var reasons = sets.New(metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
	metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonInvalid,
	metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonTooManyRequests,
	metav1.StatusReasonInternalError, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonServiceUnavailable)

// Result returns the value of the label result: success, the reason that the API server gave, other for a reason that
// is not one of its own, or error if it gave none.
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

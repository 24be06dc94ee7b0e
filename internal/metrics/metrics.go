// Package metrics are the controllers' own metrics, beside those of work queues and API requests.
package metrics

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	// ServiceWrites counts writes of Services, by action (Create, Adopt, Update, Replace, Delete, Retire) and result.
	ServiceWrites = counter("service_writes_total", "Writes of Services, by action and result.", "action", "result")
	// SliceWrites counts writes of EndpointSlices for mode Hostnames, by action (Create, Update, Delete) and result.
	SliceWrites = counter("endpointslice_writes_total", "Writes of EndpointSlices for mode Hostnames, by action and "+
		"result.", "action", "result")
	// StatusWrites counts writes of the status of LocalServices, by result.
	StatusWrites = counter("status_writes_total", "Writes of the status of LocalServices, by result.", "result")
	// PodLabelWrites counts writes of the node label to pods, by result.
	PodLabelWrites = counter("pod_label_writes_total", "Writes of the node label to pods, by result.", "result")
	// PodsLabelledAtBinding is 1 while an admission policy labels pods in the write that binds them, 0 while the
	// controller does. It is 0, too, before the first pod is scheduled.
	PodsLabelledAtBinding = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "localservice_pods_labelled_at_binding",
		Help:           "1 if the pod that was scheduled last had its node label from the beginning.",
		StabilityLevel: metrics.ALPHA,
	})
	// InvalidLocalServices is 1 for each LocalService whose spec cannot be turned into Services.
	InvalidLocalServices = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "localservice_invalid",
		Help:           "1 for each LocalService whose spec cannot be turned into Services, or cannot even be read.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"namespace", "name"})
)

// invalid has the keys of the LocalServices whose spec is invalid.
var invalid sync.Map

// SetInvalid tells whether a LocalService's spec is invalid. There is no series for one that is not. It returns whether
// it was invalid before.
func SetInvalid(key types.NamespacedName, isInvalid bool) (before bool) {
	if isInvalid {
		_, before = invalid.Swap(key, nil)
		InvalidLocalServices.WithLabelValues(key.Namespace, key.Name).Set(1)
		return before
	}
	if _, before = invalid.LoadAndDelete(key); before {
		InvalidLocalServices.Delete(map[string]string{"namespace": key.Namespace, "name": key.Name})
	}
	return before
}

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "localservice_" + name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels)
}

// Register makes the metrics visible.
var Register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(ServiceWrites, SliceWrites, StatusWrites, PodLabelWrites, PodsLabelledAtBinding,
		InvalidLocalServices)
})

// reasons are those that the API server itself gives. An admission webhook may give any, of which each would be a time
// series.
var reasons = sets.New(metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound,
	metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonInvalid,
	metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonTooManyRequests,
	metav1.StatusReasonInternalError, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonServiceUnavailable)

// Result is the value of the label result: success, the reason that the API server gave, other for reasons that are not
// its own, or error if it gave none.
func Result(err error) string {
	if err == nil {
		return "success"
	}
	reason := apierrors.ReasonForError(err)
	switch {
	case reasons.Has(reason):
		return string(reason)
	case reason != "":
		return "other"
	}
	return "error"
}

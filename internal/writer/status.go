package writer

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// NumbersInterval is the shortest time between status writes that change only numbers, as while pods become
	// ready.
	NumbersInterval = time.Second
	// turnsInterval replaces NumbersInterval while another turn follows.
	turnsInterval = 5 * time.Second
)

// WriteStatus writes the status of a LocalService if it differs, and records events for conditions that begin to need
// attention. It returns how long to wait if the write is too early, if the status was refused, or if the cache has not
// observed the last status.
func (w *Writer) WriteStatus(ctx context.Context, ls *v1alpha1.LocalService, after v1alpha1.LocalServiceStatus,
	moreTurns bool) (later time.Duration, err error) {
	if wait := w.Observed.Wait(cache.KeyOf(ls), w.Caches.LocalServices, cache.StatusTimeout); wait > 0 {
		return wait, nil
	}
	if apiequality.Semantic.DeepEqual(&ls.Status, &after) {
		return 0, nil
	}
	attempt := Attempt{Owner: ls.UID, Generation: ls.Generation, Action: "Status"}
	if wait := w.Refusals.RetryAfter(attempt); wait > 0 {
		return wait, nil
	}
	onlyNumbers := ls.Status.ObservedGeneration == ls.Generation &&
		len(status.Changed(ls.Status.Conditions, after.Conditions)) == 0
	interval := NumbersInterval
	if moreTurns {
		interval = turnsInterval
	}
	left := interval - w.Observed.SinceWrite(cache.KeyOf(ls), w.Caches.LocalServices)
	if onlyNumbers && left > 0 {
		return left, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if failure := w.writeStatus(ctx, ls, &after); failure != nil {
		retryAfter, isReported, err := w.Refusals.AfterFailure(attempt, failure)
		if isReported {
			klog.FromContext(ctx).Error(failure, "Status refused, trying again later", "localService", klog.KObj(ls),
				"after", retryAfter)
		}
		return retryAfter, err
	}
	w.Refusals.Remove(attempt)
	warnings := status.Warnings(ls.Status.Conditions, after.Conditions)
	for _, condition := range warnings {
		w.Record(ls, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
	for _, c := range append(warnings, status.Recovered(ls.Status.Conditions, after.Conditions)...) {
		klog.FromContext(ctx).Info("Condition changed", "localService", klog.KObj(ls), "condition", c.Type,
			"status", c.Status, "reason", c.Reason, "message", c.Message)
	}
	return 0, nil
}

// writeStatus writes the status of a LocalService. It ignores one that was deleted, which the watch will show.
func (w *Writer) writeStatus(ctx context.Context, ls *v1alpha1.LocalService,
	after *v1alpha1.LocalServiceStatus) error {
	// The resource version protects a LocalService that was changed, or recreated under the same name, from a status
	// that is not its own. An older CustomResourceDefinition would drop fields without a word.
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))
	object.SetName(ls.Name)
	object.SetUID(ls.UID)
	object.SetResourceVersion(ls.ResourceVersion)
	// A typed client could not decode the answer if the spec is unreadable.
	written, err := w.Dynamic.Resource(cache.LocalServiceResource).Namespace(ls.Namespace).UpdateStatus(ctx, object,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	metrics.StatusWrites.WithLabelValues(metrics.Result(err)).Inc()
	switch {
	case err == nil:
		w.Observed.Wrote(cache.KeyOf(ls), w.Caches.LocalServices, written.GetResourceVersion())
		return nil
	case isAbsent(err):
		return nil
	}
	err = fmt.Errorf("write the status of LocalService %s/%s: %w", ls.Namespace, ls.Name, err)
	if strings.Contains(err.Error(), "unknown field") {
		err = fmt.Errorf("%w: the CustomResourceDefinition is older than the controller; apply crd.yaml of the "+
			"controller's release", err)
	}
	return err
}

package writer

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// contestedBy says if a Service is not stored as it was written: as contested if the write changed something all the
// same, and otherwise as refused. A creation is not contested yet: admission may act on creations only, so an update
// may still correct what differs.
func contestedBy(change *plan.Change, stored *corev1.Service) (contested, refused error) {
	fields := change.Template.Mismatches(stored, change.Node)
	switch {
	case len(fields) == 0, change.Action == plan.Create:
		return nil, nil
	case plan.IsUnchanged(change.Current, stored):
		return nil, &status.ContestedError{Fields: fields}
	}
	return &status.ContestedError{Fields: fields}, nil
}

// setter is the field manager that has changed an object, "" if it is not known. isCurrent is false if the cache lags
// behind the API server, so that the object may not have been changed at all.
type setter struct {
	manager   string
	isCurrent bool
}

// addUndone records that something else has undone an update of an object, which must be made again, and returns the refusal.
func (w *Writer) addUndone(attempt Attempt, object string, fields []string, by setter) (Refusal, error) {
	if !by.isCurrent {
		return Refusal{}, staleError("%s has changed", object)
	}
	return w.Refusals.AddUndone(attempt, &status.ContestedError{Object: object, Fields: fields, Manager: by.manager}), nil
}

// setterOf returns the field manager that has set one of some paths in an object after the controller; "" if the object
// does not say so, as when something was removed. It uses a list request, which is permitted anyway.
func (w *Writer) setterOf(ctx context.Context, resource schema.GroupVersionResource, object versioned,
	paths ...[]string) setter {
	list, err := w.Metadata.Resource(resource).Namespace(object.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, object.GetName()).String()})
	if err != nil {
		return setter{isCurrent: true} // A fight is worse than a report without the manager.
	}
	if len(list.Items) != 1 || list.Items[0].ResourceVersion != object.GetResourceVersion() {
		return setter{}
	}
	var last metav1.ManagedFieldsEntry
	for _, isOurs := range []bool{true, false} {
		for _, entry := range list.Items[0].ManagedFields {
			switch {
			case isOurs != (entry.Manager == v1alpha1.FieldManager), entry.Time.Before(last.Time):
			case isOurs:
				last.Time = entry.Time
			case includes(entry.FieldsV1, paths):
				last = entry
			}
		}
	}
	return setter{last.Manager, true}
}

// versioned identifies the version of an object.
type versioned interface {
	klog.KMetadata
	GetResourceVersion() string
}

// includes reports whether a set of managed fields has one of some paths.
func includes(managed *metav1.FieldsV1, paths [][]string) bool {
	for _, path := range paths {
		var at any
		if managed == nil || json.Unmarshal(managed.GetRawBytes(), &at) != nil {
			return false
		}
		for _, key := range path {
			in, _ := at.(map[string]any)
			at = in["f:"+key]
		}
		if at != nil {
			return true
		}
	}
	return false
}

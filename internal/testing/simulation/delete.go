package simulation

import (
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// delete deletes an object, or marks it as being deleted: see metav1.DeleteOptions.
func (s *APIServer) delete(by string, t *table, key types.NamespacedName, options *metav1.DeleteOptions) error {
	stored := t.objects[key]
	if stored == nil {
		return apierrors.NewNotFound(t.groupResource(), key.Name)
	}
	object := stored.object.DeepCopyObject().(Object)
	uid, version := object.GetUID(), object.GetResourceVersion()
	if p := options.Preconditions; p != nil && (ptr.Deref(p.UID, uid) != uid || ptr.Deref(p.ResourceVersion, version) !=
		version) {
		return apierrors.NewConflict(t.groupResource(), key.Name, fmt.Errorf("precondition failed: %s", p))
	}
	setPropagation(object, options)
	grace := t.gracePeriod(object, options)
	if len(object.GetFinalizers()) == 0 && grace == 0 {
		s.commit(by, t, key, stored, nil)
		return nil
	}
	if object.GetDeletionTimestamp() == nil {
		object.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(grace).Truncate(time.Second))))
		object.SetDeletionGracePeriodSeconds(new(int64(grace / time.Second)))
		if object.GetGeneration() > 0 {
			object.SetGeneration(object.GetGeneration() + 1)
		}
	}
	if !apiequality.Semantic.DeepEqual(stored.object, object) {
		s.commit(by, t, key, stored, object)
	}
	return nil
}

// setPropagation adds the finalizer that asks the garbage collector for the propagation in the options.
func setPropagation(object Object, options *metav1.DeleteOptions) {
	if options.PropagationPolicy == nil {
		return
	}
	finalizers := withoutPropagation(object)
	switch *options.PropagationPolicy {
	case metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	}
	object.SetFinalizers(finalizers)
}

// withoutPropagation returns the finalizers of an object but those of the garbage collector.
func withoutPropagation(object Object) []string {
	return slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
}

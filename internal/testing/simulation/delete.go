package simulation

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// delete deletes an object, or marks it as being deleted: see metav1.DeleteOptions.
func (s *APIServer) delete(by string, t *table, key types.NamespacedName, options *metav1.DeleteOptions) error {
	stored := t.objects[key]
	if stored == nil {
		return apierrors.NewNotFound(t.groupResource(), key.Name)
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != stored.object.GetUID() {
			return apierrors.NewConflict(t.groupResource(), key.Name, fmt.Errorf(
				"precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, stored.object.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != stored.object.GetResourceVersion() {
			return apierrors.NewConflict(t.groupResource(), key.Name, fmt.Errorf("precondition failed: "+
				"ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion,
				stored.object.GetResourceVersion()))
		}
	}
	object := stored.object.DeepCopyObject().(Object)
	setPropagation(object, options)
	grace := t.gracePeriod(object, options)
	if len(object.GetFinalizers()) == 0 && grace == 0 {
		s.commit(by, t, key, stored, nil)
		return nil
	}
	if object.GetDeletionTimestamp() == nil {
		deletion := metav1.NewTime(time.Now().Add(grace).Truncate(time.Second))
		object.SetDeletionTimestamp(&deletion)
		seconds := int64(grace / time.Second)
		object.SetDeletionGracePeriodSeconds(&seconds)
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
	finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch {
	case options.PropagationPolicy == nil:
		return
	case *options.PropagationPolicy == metav1.DeletePropagationOrphan:
		finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
	case *options.PropagationPolicy == metav1.DeletePropagationForeground:
		finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
	}
	object.SetFinalizers(finalizers)
}

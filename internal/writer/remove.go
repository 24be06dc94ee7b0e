package writer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// replace deletes a Service and creates its successor, once the API server has confirmed in a dry run that it would
// accept that. Its error is a ContestedError if the successor would have to be replaced, too.
func (w *execution) replace(ctx context.Context, change *plan.Change) (*corev1.Service, error) {
	client, template := w.client(), change.Template
	successor := template.Service(change.Node)
	dryRun := metav1.CreateOptions{FieldManager: v1alpha1.FieldManager, DryRun: []string{metav1.DryRunAll}}
	// The API server looks for another object of the name last, after admission and validation.
	_, err := client.Create(ctx, successor, dryRun)
	if apierrors.IsAlreadyExists(err) {
		// It returns what it would store only if the name is free.
		var stored *corev1.Service
		trial := successor.DeepCopy()
		trial.Name = freeName(successor.Name)
		if stored, err = client.Create(ctx, trial, dryRun); err == nil {
			if fields, needsReplacement := template.Mismatches(stored, change.Node); needsReplacement {
				return nil, &plan.ContestedError{Fields: fields}
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the Service stays as it is, because a dry run of its successor failed: %w", err)
	}
	if err := w.remove(ctx, change.Current); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	// Nothing has the name now, so the time that slow admission has taken in the steps before does not count.
	create := func(service *corev1.Service) (*corev1.Service, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		return client.Create(ctx, service, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	}
	created, err := create(successor)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		// A dry run does not find everything, such as an exhausted address range.
		restored, backErr := create(template.Restored(change.Current))
		if backErr != nil {
			return nil, fmt.Errorf("%w; and the previous Service could not be restored: %w", err, backErr)
		}
		w.Observed.Wrote(cache.KeyOf(w.ls), w.Caches.Services, restored.ResourceVersion)
		// Whatever the answer was: without a backoff, the Service would be deleted again at once.
		return nil, refuse("the previous Service was restored, because its successor was refused: %w", err)
	}
	return created, err
}

// freeName returns a name for a trial. It keeps the beginning, because policies may match that. It is complete, because
// mutating policies run before the API server generates a name, and could not read it.
func freeName(name string) string {
	const random, longest = 5, 63
	base := name + "-"
	return base[:min(len(base), longest-random)] + rand.String(random)
}

// delete deletes a Service that no node wants, once the API server has confirmed that: the cache of nodes may lag
// behind that of Services.
func (w *execution) delete(ctx context.Context, change *plan.Change) error {
	labels, err := w.nodeLabels(ctx, change.Node)
	if err != nil {
		return err
	}
	if labels != nil && (change.IfNodeGone || plan.Wants(w.ls, change.Node, labels, change.Name)) {
		return reconcile.Stale(fmt.Errorf("its node %s exists", change.Node))
	}
	return w.remove(ctx, change.Current)
}

// remove deletes a Service as the plan has seen it: if it was changed since, it may belong to another object.
// The steps before may have taken time, so it first checks whether the plan is still wanted.
func (w *execution) remove(ctx context.Context, current plan.Service) error {
	if err := w.checkWanted(); err != nil {
		return err
	}
	uid, version := current.GetUID(), current.GetResourceVersion()
	return w.client().Delete(ctx, current.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

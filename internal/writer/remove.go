package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// replace deletes a Service and recreates it, once the API server has confirmed in a dry run that it would accept the
// successor. It returns a ContestedError if the successor would have to be replaced, too.
func (t *turn) replace(ctx context.Context, change *plan.Change) (*corev1.Service, error) {
	client, template := t.client(), change.Template
	successor := template.Service(change.Node)
	dryRun := metav1.CreateOptions{FieldManager: v1alpha1.FieldManager, DryRun: []string{metav1.DryRunAll}}
	// The API server checks whether the name is taken last, after admission and validation.
	_, err := client.Create(ctx, successor, dryRun)
	if apierrors.IsAlreadyExists(err) {
		// The API server returns what it would store only if the name is free.
		var stored *corev1.Service
		trial := successor.DeepCopy()
		trial.Name = freeName(successor.Name)
		if stored, err = client.Create(ctx, trial, dryRun); err == nil {
			if fields, needsReplacement := template.Mismatches(stored, change.Node); needsReplacement {
				return nil, &plan.ContestedError{Fields: fields}
			}
		}
		if answer, isAnswer := errors.AsType[*apierrors.StatusError](err); isAnswer { // It is about the successor.
			renamed := *answer
			renamed.ErrStatus.Message = strings.ReplaceAll(renamed.ErrStatus.Message, trial.Name, successor.Name)
			err = &renamed
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the Service stays as it is, because a dry run of its successor failed: %w", err)
	}
	if err := t.remove(ctx, change.Current); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	// The Service is deleted now, so its creation gets a timeout of its own, however slow admission has been so far.
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
		t.Observed.Wrote(cache.KeyOf(t.ls), t.Caches.Services, restored.ResourceVersion)
		// Whatever the error, without a backoff the Service would be deleted again at once.
		return nil, refuse("the previous Service was restored, because its successor was refused: %w", err)
	}
	return created, err
}

// freeName returns an unused name for a dry run. It keeps the beginning of the name, because policies may match that.
// It does not use generateName, because mutating policies run before the API server generates a name, and could not
// read it.
func freeName(name string) string {
	const random, longest = 5, 63
	base := name + "-"
	return base[:min(len(base), longest-random)] + rand.String(random)
}

// delete deletes a Service that no node wants, once the API server has confirmed that: the cache of nodes may lag
// behind that of Services.
func (t *turn) delete(ctx context.Context, change *plan.Change) error {
	labels, err := t.nodeLabels(ctx, change.Node)
	if err != nil {
		return err
	}
	if labels != nil && (change.IfNodeGone || plan.Wants(t.ls, change.Node, labels, change.Name)) {
		return reconcile.Stale(fmt.Errorf("its node %s exists", change.Node))
	}
	return t.remove(ctx, change.Current)
}

// remove deletes a Service in the version that the plan has seen: a Service that was changed since may belong to
// another object. It first checks whether the plan is still wanted, because the previous steps may have taken time.
func (t *turn) remove(ctx context.Context, current *plan.Service) error {
	if err := t.checkWanted(); err != nil {
		return err
	}
	uid, version := current.UID, current.GetResourceVersion()
	return t.client().Delete(ctx, current.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

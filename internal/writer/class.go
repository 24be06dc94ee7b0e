package writer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
)

// Class determines how a write that failed is tried again.
type Class string

const (
	// Refused: the same write would most likely fail again in a moment, or hang again.
	Refused Class = "Refused"
	// Stale: the cache was behind the API server, or the controller is stopping.
	Stale Class = "Stale"
	// Transient: the API server could not be reached, or was busy. That may pass in a moment.
	Transient Class = "Transient"
	// Terminating: the namespace is being deleted.
	Terminating Class = "Terminating"
)

// ClassOf returns the class of the error of a write.
func ClassOf(err error) Class {
	_, isAnswer := errors.AsType[*apierrors.StatusError](err)
	_, isOurs := errors.AsType[*refusedError](err)
	switch {
	case isOurs, isContested(err):
		return Refused
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err),
		errors.Is(err, context.Canceled), reconcile.IsStale(err):
		return Stale
	case errors.Is(err, context.DeadlineExceeded):
		return Refused // A write that hangs must not hold up others repeatedly.
	case !isAnswer, apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err):
		return Transient
	}
	return Refused
}

// isContested reports whether an error says that something else sets what was written.
func isContested(err error) bool {
	_, is := errors.AsType[*plan.ContestedError](err)
	return is
}

// refusedError is a refusal that is not the API server's: what is wanted must not be written, or it was stored
// differently.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

func refuse(format string, args ...any) error { return &refusedError{fmt.Errorf(format, args...)} }

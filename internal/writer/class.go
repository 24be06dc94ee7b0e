package writer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/localservice-dev/local-service-controller/internal/status"
)

// Class determines how a failed write is retried.
type Class string

const (
	// Refused writes would most likely fail, or hang, again at once.
	Refused Class = "Refused"
	// Stale writes failed because the cache lags behind the API server, or because the controller is stopping.
	Stale Class = "Stale"
	// Transient errors may pass in a moment: the API server was busy or could not be reached.
	Transient Class = "Transient"
	// Terminating means that the namespace is being deleted.
	Terminating Class = "Terminating"
)

// ClassOf returns the class of a write's error.
func ClassOf(err error) Class {
	_, isAnswer := errors.AsType[*apierrors.StatusError](err)
	_, isOurs := errors.AsType[*refusedError](err)
	switch {
	case isOurs, isContested(err):
		return Refused
	case apierrors.IsUnexpectedServerError(err):
		return Transient // The answer is no Status: most likely that of a load balancer, whatever its code.
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Terminating
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err),
		errors.Is(err, context.Canceled), errors.Is(err, errStale):
		return Stale
	case errors.Is(err, context.DeadlineExceeded):
		return Refused // A write that hangs must not block others again and again.
	case !isAnswer, apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err),
		apierrors.IsServerTimeout(err):
		return Transient
	}
	return Refused
}

// errStale is in the errors of live reads, which have shown that the cache lags: the next plan will be right.
var errStale = errors.New("the cache lags behind the API server")

func staleError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errStale, fmt.Sprintf(format, args...))
}

// isAbsent reports whether the API server says that the object of a request does not exist. A load balancer may answer
// 404, too.
func isAbsent(err error) bool { return ClassOf(err) == Stale && apierrors.IsNotFound(err) }

// refusedError marks a refusal that does not come from the API server: the change must not be written, or it was
// stored differently.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

func refuse(format string, args ...any) error { return &refusedError{fmt.Errorf(format, args...)} }

// isContested reports whether an error says that something else sets the fields that were written.
func isContested(err error) bool {
	_, is := errors.AsType[*status.ContestedError](err)
	return is
}

// isUndone reports whether an error says that something else has set the fields after the write.
func isUndone(err error) bool {
	contested, is := errors.AsType[*status.ContestedError](err)
	return is && contested.IsUndone
}

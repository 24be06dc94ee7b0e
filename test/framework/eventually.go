package framework

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// DefaultTimeout is the timeout of all waits. What the controller does takes milliseconds; this is for busy machines,
// and for Kubernetes' garbage collector, which looks for new resources every 30 seconds. A test with a shorter timeout
// depends on the speed of the machine.
const DefaultTimeout = 4 * time.Minute

// must returns a function that fails a test on an error, and else returns the value.
func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// hopelessError is an error that waiting does not fix.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

// Hopeless marks an error of a check for which Eventually and Poll do not try again: what must never happen has.
func Hopeless(err error) error { return hopelessError{err} }

// Eventually polls until check returns nil. If that does not happen within DefaultTimeout, it fails the test with
// check's last error and the state of the cluster: that of a namespace, or of all with "".
func (c *Cluster) Eventually(t testing.TB, namespace, what string, check func(ctx context.Context) error) {
	t.Helper()
	if err := Poll(t.Context(), check); err != nil {
		t.Fatalf("not so: %s\n%v\n%s", what, err, c.Describe(namespace))
	}
}

// Poll calls check until it returns nil, and returns its last error if that does not happen within DefaultTimeout. It
// checks often at first, and less often later: tests that wait must not load the machine.
func Poll(ctx context.Context, check func(ctx context.Context) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	var last error
	for interval := pollInterval / 2; ; interval = min(interval*5/4, 10*pollInterval) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if _, hopeless := errors.AsType[hopelessError](err); hopeless {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err // Otherwise it says only that time ran out.
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v still: %w", time.Since(began).Round(time.Millisecond), last)
		case <-time.After(interval):
		}
	}
}

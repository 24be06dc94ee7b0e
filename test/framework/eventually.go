package framework

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// DefaultTimeout is the deadline of all that is waited for. What the controller does takes milliseconds; this is for
// machines that are busy with something else, and for Kubernetes' garbage collector, which looks every 30 seconds for
// resources that are new to it. A test that waits for less depends on the speed of the machine.
const DefaultTimeout = 2 * time.Minute

// hopelessError is an error that waiting does not mend.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

// Hopeless is an error for the checks of Eventually and Poll, which do not try again then: what must never happen has.
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
// asks often in the beginning, and more rarely then: tests that wait must not keep the machine busy.
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
			last = err // Otherwise it only says that the time was up.
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v still: %w", time.Since(began).Round(time.Millisecond), last)
		case <-time.After(interval):
		}
	}
}

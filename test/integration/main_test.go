// Package integration tests the built controller against a real API server: the clusters here have a control plane,
// and Node objects that the tests make, but nothing that runs pods.
//
// Most tests share one cluster and one controller. Each has a namespace of its own, and nodes of its own, which its
// LocalServices select by a label, so they run at the same time. Tests that concern a whole cluster (flags, restarts,
// leader election, permissions) start their own.
//
// Tests of what docs/reference/behaviour.md promises begin with a word for the promise, here and in the other packages:
// TestNames, TestAdoption, TestEveryField, TestImmutableTransitions, TestStatus, TestDeletion and TestPods. So
// `go test -run TestNames ./...` runs all that is about names.
package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// shared is the cluster of most tests. One controller with its default flags works in it.
var shared *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, func(ctx context.Context) (func() error, error) {
		var err error
		if shared, err = framework.StartCluster(ctx, framework.ControlPlane()); err != nil {
			return nil, err
		}
		controller, err := shared.StartController(ctx, "-v=4")
		if err != nil {
			return nil, errors.Join(err, shared.Stop())
		}
		return func() error {
			return errors.Join(controller.CheckLog(), shared.Stop(), stopSolo())
		}, nil
	})
}

package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// soloClusters are clusters in which no controller works but those of one test at a time, which it starts itself.
// Whoever takes one out has it; nil is one that is still to be started.
var soloClusters = func() chan *framework.Cluster {
	const count = 2
	clusters := make(chan *framework.Cluster, count)
	for range count {
		clusters <- nil
	}
	return clusters
}()

// solo waits until it is this test's turn, and returns a solo cluster, where the test may run controllers. TestMain
// stops it.
func solo(t *testing.T) *framework.Cluster {
	t.Helper()
	cluster := <-soloClusters
	t.Cleanup(func() { soloClusters <- cluster })
	if cluster == nil {
		var err error
		// Not with the context of the test, which others outlive.
		if cluster, err = framework.StartCluster(context.Background(), controlPlane()); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

// stopSolo ends the solo clusters that tests have started.
func stopSolo() error {
	var errs []error
	for range cap(soloClusters) {
		if cluster := <-soloClusters; cluster != nil {
			errs = append(errs, cluster.Stop())
		}
	}
	return errors.Join(errs...)
}

package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// soloClusters has the clusters that tests use one at a time. Only the controllers that such a test starts work there.
// A test takes a cluster out; nil is one that is not started yet.
var soloClusters = func() chan *framework.Cluster {
	clusters := make(chan *framework.Cluster, 2)
	clusters <- nil
	clusters <- nil
	return clusters
}()

// solo waits for a free cluster, and returns it. The test may run controllers there. TestMain stops the cluster.
func solo(t *testing.T) *framework.Cluster {
	t.Helper()
	cluster := <-soloClusters
	t.Cleanup(func() { soloClusters <- cluster })
	if cluster == nil {
		var err error
		options := framework.ControlPlane()
		options.Hostnames = true
		// Not with the context of the test: other tests outlive it.
		if cluster, err = framework.StartCluster(context.Background(), options); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

// stopSolo ends the clusters that tests have started.
func stopSolo() error {
	var errs []error
	for range cap(soloClusters) {
		if cluster := <-soloClusters; cluster != nil {
			errs = append(errs, cluster.Stop())
		}
	}
	return errors.Join(errs...)
}

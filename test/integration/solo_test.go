package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// clusterPool has clusters that tests use one at a time. Only the controllers that such a test starts work there. A
// test takes a cluster out of the pool; nil is one that is not started yet.
type clusterPool struct {
	clusters chan *framework.Cluster
	options  framework.ClusterOptions
}

func newClusterPool(count int, options framework.ClusterOptions) *clusterPool {
	pool := &clusterPool{make(chan *framework.Cluster, count), options}
	for range count {
		pool.clusters <- nil
	}
	return pool
}

var soloClusters = newClusterPool(2, controlPlane())

// solo waits for a free cluster, and returns it. The test may run controllers there. TestMain stops the cluster.
func solo(t *testing.T) *framework.Cluster {
	t.Helper()
	return soloClusters.take(t)
}

func (p *clusterPool) take(t *testing.T) *framework.Cluster {
	t.Helper()
	cluster := <-p.clusters
	t.Cleanup(func() { p.clusters <- cluster })
	if cluster == nil {
		var err error
		// Not with the context of the test: other tests outlive it.
		if cluster, err = framework.StartCluster(context.Background(), p.options); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

// stop ends the clusters that tests have started.
func (p *clusterPool) stop() error {
	var errs []error
	for range cap(p.clusters) {
		if cluster := <-p.clusters; cluster != nil {
			errs = append(errs, cluster.Stop())
		}
	}
	return errors.Join(errs...)
}

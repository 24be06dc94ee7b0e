package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// clusterPool has clusters in which no controller works but those of one test at a time, which it starts itself.
// Whoever takes one out has it; nil is one that is still to be started.
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

// solo waits until it is this test's turn, and returns a solo cluster, where the test may run controllers. TestMain
// stops it.
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
		// Not with the context of the test, which others outlive.
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

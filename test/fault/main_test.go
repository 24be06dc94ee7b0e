package fault

import (
	"context"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// shared is the cluster of the campaigns that leave it intact. Each has a namespace, nodes and a controller of its own,
// so they run one after the other.
var shared *framework.Cluster

// controlPlane is a cluster without nodes, and without the controllers that create EndpointSlices. Its audit log is one
// file of any size, so that all requests are counted.
func controlPlane() framework.ClusterOptions {
	return framework.ClusterOptions{ControlPlaneOnly: true, Args: []string{
		"--apiserver-flag=--audit-log-maxsize=16384",
		"--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"}}
}

func TestMain(m *testing.M) {
	framework.Main(m, func(ctx context.Context) (func() error, error) {
		var err error
		shared, err = framework.StartCluster(ctx, controlPlane())
		if err != nil {
			return nil, err
		}
		return shared.Stop, nil
	})
}

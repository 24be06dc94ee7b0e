package integration

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// publisher is a cluster without kubelets in which Kubernetes publishes pods in EndpointSlices, of both families.
func publisher() framework.ClusterOptions {
	return framework.ClusterOptions{
		ControlPlaneOnly: true,
		Hostnames:        true,
		Args: []string{
			// Nobody renews the nodes' leases. That must not make their pods unready.
			"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
			dualStackRanges,
		},
	}
}

// run creates a pod of LocalService demo that is ready at an address.
func (s *scene) run(name, node, address string) {
	s.T.Helper()
	s.CreatePod(name, node, app)
	s.setPodStatus(name, address, "")
}

// sliceOf returns the only EndpointSlice of a Service, once it has an address.
func (s *scene) sliceOf(service string) (slice *discoveryv1.EndpointSlice) {
	s.T.Helper()
	s.Eventually("Service "+service+" has one EndpointSlice with an address", func(ctx context.Context) error {
		list, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) == 0 {
			return fmt.Errorf("there are %v: %w", list.Items, err)
		}
		slice = &list.Items[0]
		return nil
	})
	return slice
}

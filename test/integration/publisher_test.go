package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// targetName is a port of a spec whose number the pods decide.
const targetName = "ports: [{name: http, port: 80, targetPort: http}]"

// runApart creates pods of LocalService demo, one on each node, that are ready. Their numbers for the port targetName
// differ, so that Kubernetes publishes each in an EndpointSlice of its own.
func (s *scene) runApart(nodes []string) {
	s.T.Helper()
	for i, node := range nodes {
		s.CreatePod(node, node, app, func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: int32(8080 + i)}}
		})
		s.setPodStatus(node, fmt.Sprintf("10.1.2.%d", i+1), "")
	}
}

// waitAddresses waits until LocalService demo publishes addresses, sorted, in mode Hostnames.
func (s *scene) waitAddresses(want ...string) (published []discoveryv1.EndpointSlice) {
	s.T.Helper()
	s.Eventually("the published addresses are "+strings.Join(want, ", "), func(ctx context.Context) error {
		list, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=demo"})
		if err != nil {
			return err
		}
		var addresses []string
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
		}
		slices.Sort(addresses)
		published = list.Items
		return framework.Equal("addresses", addresses, want)
	})
	return published
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

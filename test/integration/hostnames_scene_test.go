package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
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

// publishing is the cluster of the tests of mode Hostnames, nil until one needs it. One controller works in it.
var publishing *framework.Cluster

var startPublishing = sync.OnceValue(func() (err error) {
	if publishing, err = framework.StartCluster(context.Background(), publisher()); err == nil {
		_, err = publishing.StartController(context.Background(), "-v=4")
	}
	return err
})

// newPublishingScene returns a scene in that cluster. The first call starts the cluster.
func newPublishingScene(t *testing.T, word string) *scene {
	t.Helper()
	if err := startPublishing(); err != nil {
		t.Fatal(err)
	}
	return newScene(t, publishing, word)
}

// run creates a pod of LocalService demo that is ready at an address, or at two with a comma between them.
func (s *scene) run(name, node, addresses string) {
	s.T.Helper()
	s.CreatePod(name, node, app)
	first, second, isDual := strings.Cut(addresses, ",")
	s.setPodStatus(name, first, "")
	if isDual {
		s.PatchPod(name, fmt.Sprintf(`{"status": {"podIPs": [{"ip": %q}, {"ip": %q}]}}`, first, second), "status")
	}
}

// slicesOf returns the EndpointSlices of a Service, by name.
func (s *scene) slicesOf(ctx context.Context, service string) ([]discoveryv1.EndpointSlice, error) {
	list, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// sliceOf returns the only EndpointSlice of a Service, once it has at least some addresses.
func (s *scene) sliceOf(service string, addresses int) (slice *discoveryv1.EndpointSlice) {
	s.T.Helper()
	s.Eventually("Service "+service+" has one EndpointSlice with its addresses", func(ctx context.Context) error {
		all, err := s.slicesOf(ctx, service)
		if err != nil || len(all) != 1 || len(all[0].Endpoints) < addresses {
			return fmt.Errorf("it has %d: %w", len(all), err)
		}
		slice = &all[0]
		return nil
	})
	return slice
}

// published returns the only EndpointSlice of Service demo.
func (s *scene) published() *discoveryv1.EndpointSlice {
	s.T.Helper()
	return s.sliceOf("demo", 0)
}

// names returns the names that Service demo publishes, with their addresses: a=10.1.0.1 is node a of the scene, with a
// ! if the pod is not ready.
func (s *scene) names(ctx context.Context) ([]string, error) {
	all, err := s.slicesOf(ctx, "demo")
	names := []string{}
	for i := range all {
		for _, endpoint := range all[i].Endpoints {
			if endpoint.Hostname == nil {
				return nil, framework.Hopeless(fmt.Errorf("an address without a name: %+v", endpoint))
			}
			name := strings.TrimPrefix(*endpoint.Hostname, s.Namespace+"-") + "=" + endpoint.Addresses[0]
			if !*endpoint.Conditions.Ready {
				name += "!"
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// wantNames waits until Service demo publishes these names and no others.
func (s *scene) wantNames(want ...string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("Service demo publishes %v", want), func(ctx context.Context) error {
		got, err := s.names(ctx)
		return errors.Join(err, framework.Equal("names", got, append([]string{}, want...)))
	})
}

// sourceName is the name of the Service of LocalService demo that selects the pods.
var sourceName = plan.ServiceName("demo", plan.Source, "")

// newSliceFence returns a function that waits until all previous events of EndpointSlices are handled.
func (s *scene) newSliceFence() (pass func()) {
	s.T.Helper()
	f := newScene(s.T, s.Cluster, s.Namespace+"-fence")
	f.AddNodes("fence")
	f.CreateReady("demo", framework.WithHostnames)
	return func() {
		f.T.Helper()
		for range fenceRounds {
			old := f.published()
			f.Must(f.Kube.DiscoveryV1().EndpointSlices(f.Namespace).Delete(f.Ctx(), old.Name, metav1.DeleteOptions{}))
			f.Eventually("the EndpointSlice is there again", func(ctx context.Context) error {
				now, err := f.slicesOf(ctx, "demo")
				if err == nil && (len(now) != 1 || now[0].UID == old.UID) {
					err = fmt.Errorf("there are %d", len(now))
				}
				return err
			})
		}
	}
}

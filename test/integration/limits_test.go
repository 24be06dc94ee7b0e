package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// disks makes four nodes, of which some have the label disk=ssd.
func (s *scene) disks(ssds int) (nodes []string) {
	s.T.Helper()
	for i := range 4 {
		labels := map[string]string{}
		if i < ssds {
			labels["disk"] = "ssd"
		}
		nodes = append(nodes, s.NodeName(fmt.Sprint(i)))
		s.CreateNode(nodes[i], labels)
	}
	return nodes
}

// TestDeletionMaxFraction tests the limit of what one change may delete.
func TestDeletionMaxFraction(t *testing.T) {
	t.Parallel()
	cluster := solo(t)
	tests := []struct {
		name string
		ssds int
		held bool
		then change // what ends it, nil if nothing was held
	}{
		{name: "half is allowed", ssds: 2},
		{name: "more is held until the spec is corrected", ssds: 1, held: true, then: func(ls *v1alpha1.LocalService) { delete(ls.Spec.NodeSelector, "disk") }},
		{name: "more is held until it is confirmed", ssds: 1, held: true, then: func(ls *v1alpha1.LocalService) {
			ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
		}},
		{name: "all is held", ssds: 0, held: true, then: func(ls *v1alpha1.LocalService) { delete(ls.Spec.NodeSelector, "disk") }},
	}
	s := newScene(t, cluster, "fraction")
	s.NewController(t, "-max-delete-fraction=0.5")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t, cluster, "fraction")
			f := s.newFence()
			s.disks(test.ssds)
			ls := s.CreateReady("demo")
			f.passServices()
			s.ResetCount()
			s.Update("demo", framework.OnNodesWith("disk", "ssd"))
			if test.held {
				s.WaitNotReady("demo", v1alpha1.ReasonDeletionHeld, v1alpha1.AllowDeletionAnnotationKey+"=true")
				f.passLocalServices()
				s.WantWrites("services", "none")
				s.Update("demo", test.then)
			}
			s.MustOwn(ls, int(s.WaitReady("demo").Status.Nodes))
		})
	}
}

// TestDeletionOfNodesOneByOne tests that the limit is for one change: nodes that leave one after the other are so many changes.
func TestDeletionOfNodesOneByOne(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "onebyone")
	s.NewController(t, "-max-delete-fraction=0.5")
	nodes := s.disks(0)
	ls := s.CreateReady("demo")
	for _, node := range nodes[:3] {
		s.DeleteNode(node)
		s.WaitServiceGone("demo-" + node)
	}
	s.WaitServices(ls, "demo-"+nodes[3])
	s.WaitReady("demo")
}

// TestDeletionOfTheOnlyNodeIsHeld tests that the limit is for whatever a deletion comes from, and however small: the only
// node of a LocalService that leaves would take all of its Services with it.
func TestDeletionOfTheOnlyNodeIsHeld(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "only")
	s.NewController(t, "-max-delete-fraction=0.9")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	ls := s.CreateReady("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "ssd" })
	s.PatchNode(nodes[0], `{"metadata":{"labels":{"disk":"ssd"}}}`)
	s.WaitServices(ls, "demo-"+nodes[0])
	s.WaitReady("demo")
	s.ResetCount()
	s.DeleteNode(nodes[0])
	s.WaitNotReady("demo", v1alpha1.ReasonDeletionHeld, "1 of 1 Services")
	f.passServices()
	f.passLocalServices()
	s.WantWrites("services", "none")
	// When another node comes in its place, half of the Services are wanted, and the other half may go.
	s.PatchNode(nodes[1], `{"metadata":{"labels":{"disk":"ssd"}}}`)
	s.WaitServices(ls, "demo-"+nodes[1])
	s.WaitReady("demo")
}

// TestDeletionIsAnnounced tests that an event with the numbers comes before most Services are deleted.
func TestDeletionIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "mass")
	s.disks(1)
	s.CreateReady("demo")
	s.Update("demo", framework.OnNodesWith("disk", "ssd"))
	s.MustOwn(s.WaitReady("demo"), 1)
	s.Eventually("an event announces it", func(ctx context.Context) error {
		events, err := s.Events(ctx, "demo", "DeletingServices")
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return errors.New("there is none")
		}
		return errors.Join(
			framework.Equal("type", events[0].Type, corev1.EventTypeWarning),
			framework.Equal("message", events[0].Message, "About to delete 3 of 4 Services, which no selected node wants any more"),
		)
	})
}

// TestCapacityMaxServicesPerNamespace tests that a namespace is not filled beyond its limit, and not half way either.
func TestCapacityMaxServicesPerNamespace(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "toomany")
	s.NewController(t, "-max-services-per-namespace=5")
	f := s.newFence()
	s.disks(3)
	for i := range 2 {
		s.CreateService(framework.NewForeignService(fmt.Sprintf("foreign-%d", i), nil))
	}
	f.passNodes()
	f.passServices()
	s.ResetCount()
	s.Create("demo")
	s.WaitNotReady("demo", v1alpha1.ReasonTooManyServices, "the namespace would have 6")
	f.passLocalServices()
	s.WantWrites("services", "none")
	s.Update("demo", framework.OnNodesWith("disk", "ssd"))
	s.MustOwn(s.WaitReady("demo"), 3)
	// It does not take away what there is, and follows changes.
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = 81 })
	s.WaitReady("demo")
	s.WantWrites("services", "3 create services 201, 3 patch services 200")
}

// TestCapacityFewClusterIPs tests that a cluster that is about to run out of addresses says so before it does, and what helps.
func TestCapacityFewClusterIPs(t *testing.T) {
	t.Parallel()
	options := controlPlane()
	options.Args = append(options.Args, "--apiserver-flag=--service-cluster-ip-range=10.96.0.0/28") // 14 addresses
	cluster := framework.NewCluster(t, options)
	s := newScene(t, cluster, "few")
	s.NewController(t)
	const nodes = 20
	s.AddManyNodes(nodes)
	s.ResetCount()
	s.Create("demo", framework.WithClusterIP)
	s.WaitNotReady("demo", v1alpha1.ReasonWriteFailed, "range is full")
	ls, err := s.LocalServiceClient().Get(s.Ctx(), "demo", metav1.GetOptions{})
	s.Must(err)
	if err := errors.Join(
		framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionTrue, v1alpha1.ReasonFewClusterIPs),
		framework.CheckConditionSays(ls, v1alpha1.ConditionNearCapacity, "use headless Services (clusterIP: None)"),
	); err != nil {
		t.Error(err)
	}
	writes := s.Requests().Writes().Where(func(r *framework.Request) bool {
		return framework.Resource(r) == "services" || framework.Resource(r) == "localservices/status"
	})
	if len(writes) == 0 || framework.Resource(&writes[0]) != "localservices/status" {
		t.Errorf("the first write is not the status, which is to warn before: %s", writes)
	}
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = corev1.ClusterIPNone })
	ls = s.WaitReady("demo")
	s.MustOwn(ls, nodes)
	if err := framework.CheckCondition(ls, v1alpha1.ConditionNearCapacity, metav1.ConditionFalse, v1alpha1.ReasonEnoughCapacity); err != nil {
		t.Error(err)
	}
}

// setEndpoint does what the EndpointSlice controller does for a Service that has one pod.
func (s *scene) setEndpoint(service *corev1.Service, ready bool) {
	s.T.Helper()
	slices := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service.Name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	for key, value := range service.Labels {
		slice.Labels[key] = value
	}
	err := slices.Delete(s.Ctx(), slice.Name, metav1.DeleteOptions{})
	_, createErr := slices.Create(s.Ctx(), slice, metav1.CreateOptions{})
	if createErr != nil {
		s.Must(errors.Join(err, createErr))
	}
}

// waitReadyNodes waits until a LocalService says that so many of its nodes have a ready endpoint.
func (s *scene) waitReadyNodes(name, want string) {
	s.T.Helper()
	s.Eventually(name+" has "+want+" ready nodes", func(ctx context.Context) error {
		ls, err := s.LocalServiceClient().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return errors.Join(
			framework.Equal("status.ready", ls.Status.Ready, want),
			framework.Equal("status.readyNodes", fmt.Sprintf("%d/%d", ls.Status.ReadyNodes, ls.Status.Nodes), want),
		)
	})
}

// TestStatusReadyNodes tests that the status tells on how many nodes something answers, and is not written for each pod.
func TestStatusReadyNodes(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "readynodes")
	nodes := s.AddNodes("a", "b", "c")
	s.CreateReady("demo")
	s.waitReadyNodes("demo", "0/3")
	services := make([]*corev1.Service, len(nodes))
	for i, node := range nodes {
		services[i] = s.GetService("demo-" + node)
	}
	s.setEndpoint(services[0], true)
	s.setEndpoint(services[1], false)
	s.waitReadyNodes("demo", "1/3")
	wantTable(t, s.MustKubectl("get", "lsvc"), `NAME +NODES +SERVICES +READY +AGE`, `demo +3 +3 +1/3 +[0-9ms]+`)
	s.setEndpoint(services[1], true)
	s.waitReadyNodes("demo", "2/3")

	s.ResetCount()
	began := time.Now()
	for i := range 40 {
		s.setEndpoint(services[2], i%2 == 0)
	}
	s.setEndpoint(services[2], true)
	s.waitReadyNodes("demo", "3/3")
	seconds := int(time.Since(began)/time.Second) + 1
	if writes := s.Requests().Resource("localservices/status"); len(writes) > seconds+1 {
		t.Errorf("the status was written %d times in %d seconds", len(writes), seconds)
	}
	s.WantWrites("services", "none")
	s.DeleteNode(nodes[0])
	s.waitReadyNodes("demo", "2/2")
	s.Must(s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Delete(s.Ctx(), services[1].Name+"-x", metav1.DeleteOptions{}))
	s.waitReadyNodes("demo", "1/2")
}

func TestProfiling(t *testing.T) {
	t.Parallel()
	controller := solo(t).NewController(t, "-profiling")
	status, body, err := controller.Get(t.Context(), "/debug/pprof/")
	if err != nil || status != http.StatusOK || !strings.Contains(body, "goroutine") {
		t.Errorf("/debug/pprof/: %d %v %s", status, err, body)
	}
}

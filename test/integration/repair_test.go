package integration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestEachChangeIsTold tests that an event describes each change, even if changes of several kinds follow each other
// and leave the LocalService unchanged: recorders of events may merge events that look like repetitions.
func TestEachChangeIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "told")
	f := s.newFence()
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	s.waitTold("demo", map[string]int{"created": 2})
	edited := s.GetService("demo-" + nodes[0])
	s.EditService(edited.Name, func(service *corev1.Service) { service.Spec.Ports[0].Port = 81 })
	s.waitRepaired(edited)
	f.passServices()
	s.waitTold("demo", map[string]int{"created": 2, "updated": 1})
	deleted := s.GetService("demo-" + nodes[1])
	s.DeleteService(deleted.Name)
	s.WaitServiceReplaced(deleted)
	f.passServices()
	s.waitTold("demo", map[string]int{"created": 3, "updated": 1})
}

// waitTold waits until the events about a LocalService report these numbers of Services that were created, replaced,
// adopted and so on.
func (s *scene) waitTold(name string, want map[string]int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("events report %v", want), func(ctx context.Context) error {
		told, err := s.told(ctx, name)
		for did := range want {
			err = errors.Join(err, framework.Equal(did+" Services in events", told[did], want[did]))
		}
		return err
	})
}

var numbersTold = regexp.MustCompile(`([a-z]+) (\d+)`)

// told returns how many Services were created and so on, according to the events about a LocalService.
func (s *scene) told(ctx context.Context, name string) (map[string]int, error) {
	sums := map[string]int{}
	events, err := s.Events(ctx, name, "ServicesWritten")
	for i := range events {
		times := 1
		if events[i].Series != nil {
			times = int(events[i].Series.Count)
		}
		for _, m := range numbersTold.FindAllStringSubmatch(events[i].Message, -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, err
			}
			sums[m[1]] += times * n
		}
	}
	return sums, err
}

// waitRepaired waits until a Service is as before, except for what the API server allocates.
func (s *scene) waitRepaired(old *corev1.Service) {
	s.T.Helper()
	s.Eventually("Service "+old.Name+" is as it was", func(ctx context.Context) error {
		now, err := s.ServiceClient().Get(ctx, old.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return errors.Join(framework.Equal("UID", now.UID, old.UID), sameButAllocated(now, old))
	})
}

// sameButAllocated compares Services, except for what the API server has allocated for them.
func sameButAllocated(now, was *corev1.Service) error {
	now, was = now.DeepCopy(), was.DeepCopy()
	for _, service := range []*corev1.Service{now, was} {
		if service.Spec.ClusterIP != corev1.ClusterIPNone {
			service.Spec.ClusterIP, service.Spec.ClusterIPs = "", nil
		}
		for i := range service.Spec.Ports {
			service.Spec.Ports[i].NodePort = 0
		}
	}
	return errors.Join(
		framework.Equal("labels of "+now.Name, now.Labels, was.Labels),
		framework.Equal("annotations of "+now.Name, now.Annotations, was.Annotations),
		framework.Equal("owners of "+now.Name, now.OwnerReferences, was.OwnerReferences),
		framework.Equal("spec of "+now.Name, now.Spec, was.Spec),
	)
}

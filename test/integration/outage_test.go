package integration

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// throughProxy runs a controller that reaches the API server through a proxy.
func (s *scene) throughProxy(args ...string) (*framework.Proxy, *framework.Controller) {
	s.T.Helper()
	proxy := s.NewProxy(s.T, s.Kubeconfig)
	proxy.Listen(s.T)
	controller := s.LaunchController(s.T, append(args, "-kubeconfig="+proxy.Kubeconfig)...)
	s.Must(controller.WaitReady(s.Ctx()))
	return proxy, controller
}

// waitAttempts waits until a controller has tried so many times more to connect.
func (s *scene) waitAttempts(proxy *framework.Proxy, more int) {
	s.T.Helper()
	want := proxy.Attempts() + more
	s.Eventually(fmt.Sprintf("the controller has tried %d times to connect", want), func(context.Context) error {
		if n := proxy.Attempts(); n < want {
			return fmt.Errorf("it has tried %d times", n)
		}
		return nil
	})
}

// TestAPIServerOutage tests that what happens while the API server cannot be reached is made up for.
func TestAPIServerOutage(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "outage")
	proxy, controller := s.throughProxy()
	nodes := s.AddNodes("a", "b", "c")
	ls := s.CreateReady("demo")

	proxy.Block()
	s.DeleteNode(nodes[0])
	s.AddNodes("d")
	s.DeleteService("demo-" + nodes[1])
	s.EditService("demo-"+nodes[2], func(service *corev1.Service) { service.Spec.Ports = nil })
	s.CreatePod("pod", nodes[1], map[string]string{"app": "demo"})
	s.Create("other")
	s.waitAttempts(proxy, 8)
	if status, body, err := controller.Get(s.Ctx(), "/healthz"); err != nil || status != http.StatusOK {
		t.Errorf("a restart would be of no use, but /healthz says %d %s %v", status, body, err)
	}
	proxy.Unblock()

	s.Eventually("all is made up for", func(ctx context.Context) error {
		now, err := s.LocalServiceClient().Get(ctx, "other", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.CheckReady(now)
	})
	s.WaitServices(ls, "demo-"+nodes[1], "demo-"+nodes[2], "demo-"+s.NodeName("d"))
	s.WaitLabelled("pod", nodes[1])
	s.WaitStatusNodes("demo", 3)
	s.Eventually("each Service is repaired", func(ctx context.Context) error {
		for name, service := range s.MustOwn(ls, 3) {
			if err := framework.Equal("number of ports of "+name, len(service.Spec.Ports), 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestAPIServerOutageIsTold tests that the log tells of an outage and of its end, once each.
func TestAPIServerOutageIsTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "told")
	proxy, controller := s.throughProxy()
	proxy.Block()
	s.waitAttempts(proxy, 8)
	const complaint = "The API server cannot be reached"
	if lines := controller.LogLines(complaint); len(lines) != 1 {
		t.Errorf("the log says %d times that the API server cannot be reached:\n%s", len(lines), controller.Tail(40))
	}
	proxy.Unblock()
	_, err := controller.WaitLog(s.Ctx(), "The API server can be reached again")
	s.Must(err)
	s.AddNodes("a")
	s.MustOwn(s.CreateReady("demo"), 1)
	if lines := controller.LogLines(complaint); len(lines) != 1 {
		t.Errorf("after the outage the log says %d times that the API server cannot be reached:\n%s", len(lines), controller.Tail(40))
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestChildEnv(t *testing.T) {
	want := []string{"PATH=/bin", "GOMAXPROCS=2"}
	got := childEnv(append(want, "HTTPS_PROXY=http://proxy", "ETCD_NAME=x", "NOTIFY_SOCKET=/run/x", "KUBECONFIG=/k"))
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPoll(t *testing.T) {
	notYet := errors.New("not yet")
	calls := 0
	err := poll(t.Context(), time.Minute, "waiting", func(context.Context) error {
		if calls++; calls < 3 {
			return notYet
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("ended after %d calls with %v", calls, err)
	}

	err = poll(t.Context(), time.Millisecond, "waiting for Godot", func(context.Context) error { return notYet })
	if !errors.Is(err, notYet) || !strings.Contains(err.Error(), "waiting for Godot") {
		t.Errorf("after the time is up: %v", err)
	}

	ended := errors.New("etcd ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	if err := poll(ctx, time.Minute, "waiting", func(context.Context) error { return notYet }); !errors.Is(err, ended) {
		t.Errorf("after a component has ended: %v", err)
	}
}

func TestClusterNsswitch(t *testing.T) {
	const others, hosts = "passwd: files systemd\n", "\nhosts: files dns\n"
	got := string(clusterNsswitch([]byte(others + "hosts:  files resolve [!UNAVAIL=return] dns\n")))
	if !strings.HasPrefix(got, others) || strings.Contains(got, "resolve") || !strings.HasSuffix(got, hosts) {
		t.Errorf("got %q", got)
	}
}

func TestNodeAddresses(t *testing.T) {
	seen := map[string]bool{gatewayIP: true, gatewayIP6: true}
	for i := 0; ; i++ {
		ips, err := nodeIPs(i, true)
		if err != nil {
			if i < 100 {
				t.Errorf("room for %d nodes only: %v", i, err)
			}
			break
		}
		addresses := append(podSubnets(ips), ips[0].String(), ips[1].String(), hardwareAddr(ips[0]).String())
		for _, address := range addresses {
			if seen[address] {
				t.Fatalf("node %d gets an address that is taken: %s", i, address)
			}
			seen[address] = true
		}
	}
}

func TestValidateNodeName(t *testing.T) {
	for name, ok := range map[string]bool{
		"k8s01": true, "ip-10-0-0-3.ec2.internal": true,
		"": false, "K8S": false, "../x": false, "a/b": false, strings.Repeat("n", 64): false,
	} {
		if err := validateNodeName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestReadySince(t *testing.T) {
	started := time.Date(2026, 1, 1, 12, 0, 0, 500, time.UTC)
	node := func(status corev1.ConditionStatus, heartbeat time.Time) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(heartbeat), Message: "because"},
		}}}
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		ok   bool
	}{
		"not reported yet":              {node: &corev1.Node{}},
		"ready":                         {node: node(corev1.ConditionTrue, started.Truncate(time.Second)), ok: true},
		"ready before it was restarted": {node: node(corev1.ConditionTrue, started.Add(-time.Second))},
		"not ready":                     {node: node(corev1.ConditionFalse, started.Add(time.Second))},
	} {
		if err := readySince(tc.node, started); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without the controller that makes service accounts, nothing waits for one.
func TestWaitForServiceAccount(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for controllers, waits := range map[string]bool{
		"": true, "*,-nodeipam-controller": true, "*,-serviceaccount-controller": false, "namespace-controller": false,
	} {
		if err := waitForServiceAccount(ctx, fake.NewClientset(), controllers); (err != nil) != waits {
			t.Errorf("%q: %v", controllers, err)
		}
	}
}

// The reserved port is free for kube-apiserver, which sets SO_REUSEPORT, and for nobody else.
func TestReservePort(t *testing.T) {
	port, release, err := reservePort()
	must(t, err)
	defer release()
	if l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		l.Close()
		t.Error("somebody else could take the port")
	}
	other, release2, err := reservePort()
	must(t, err)
	defer release2()
	if other == port {
		t.Error("two playgrounds got the same port")
	}
}

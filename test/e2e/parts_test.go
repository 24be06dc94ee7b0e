package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestPartsThatHang pauses the parts of the cluster, one after the other, deletes pods and kills the controller, while
// clients on all nodes request all nodes' names all the time: no client ever gets an answer from a wrong node. It takes
// 20 seconds, or 10 minutes with FAULT=whole, which `make fault` sets.
func TestPartsThatHang(t *testing.T) {
	s := newScene(t)
	ways := []access{s.byName(s.localService("headless")), s.byName(s.localService("virtual", framework.WithClusterIP)),
		s.byHostname(s.hostnames("names"))}
	s.deploy(6)
	s.waitForPods(2, nodes...)
	s.wantAnswers(nodes, nodes, ways...)
	var stops []func()
	for _, client := range nodes {
		stops = append(stops, s.watch(client, nodes, ways...))
	}
	d := 20 * time.Second
	if os.Getenv("FAULT") == "whole" {
		d = 10 * time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.MustKubectl("delete", "pods", "--all", "--wait=false", fmt.Sprintf("--grace-period=%d", random.IntN(3)))
		if random.IntN(3) == 0 {
			s.MustKubectl("--namespace="+controllerNamespace, "delete", "pods", "--all", "--wait=false")
		}
		part := parts[random.IntN(len(parts))]
		pids, err := s.Pids(part)
		s.Must(err)
		pid := pids[random.IntN(len(pids))]
		// Much less than the time after which a leader must stop: a controller that ends by itself would be a failure.
		pause := time.Duration(500+random.IntN(2500)) * time.Millisecond
		t.Logf("%s %d stands still for %v", part, pid, pause)
		s.Must(syscall.Kill(pid, syscall.SIGSTOP))
		time.Sleep(pause)
		s.Must(syscall.Kill(pid, syscall.SIGCONT))
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	s.Must(waitRollout(t.Context()))
	s.wantAnswers(nodes, nodes, ways...)
	for _, stop := range stops {
		stop()
	}
}

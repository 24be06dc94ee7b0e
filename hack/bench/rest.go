package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	loadedLocalServices = 2
	mostPods            = 100000
	// loadedTimeout bounds a restart with everything in place, and what is measured then.
	loadedTimeout = 10 * time.Minute

	// A kubelet renews its Lease, and reports a status that has not changed, this often.
	leaseInterval  = 10 * time.Second
	statusInterval = 5 * time.Minute
	kubeletAgent   = "kubelet/bench"
	kubeletWorkers = 16
	warmUpTime     = 15 * time.Second
	watchTime      = 60 * time.Second
)

// memoryLimits are the targets of row 6, in MB, by the number of pods.
var memoryLimits = map[int]float64{20000: 100, mostPods: 140}

// measureLoaded measures rows 4, 6 and 7, with one control plane to which more and more pods are added.
func measureLoaded(ctx context.Context, b *bench) {
	sizes := []int{mostPods}
	if b.opts.wants(6) && !b.opts.smoke {
		sizes = []int{20000, mostPods}
	}
	b.withScene(ctx, b.n(5000), func(s *scene) {
		s.seedLocalServices(ctx, loadedLocalServices)
		// The first start writes the status of the LocalServices.
		s.withController(ctx, func(ctx context.Context, _ *controller) { s.awaitReady(ctx, restTime) })
		pods := 0
		for _, size := range sizes {
			// A LocalService selects one half of the pods.
			s.seedPods(ctx, "app000", (b.n(size)-pods)/2, podLabelled)
			s.seedPods(ctx, "another", (b.n(size)-pods)/2, podRunning)
			pods = b.n(size)
			s.startLoaded(ctx, size)
		}
	})
}

// startLoaded starts a controller with everything in place. With most pods, it is watched at rest in the end.
func (s *scene) startLoaded(ctx context.Context, size int) {
	ctx, cancel := context.WithTimeout(ctx, loadedTimeout)
	defer cancel()
	pods, mark := s.n(size), s.Audit.Mark()
	what := fmt.Sprintf("%d pods, %d nodes, %d Services", pods, len(s.nodes), loadedLocalServices*len(s.nodes))
	var rests []atRest
	s.withController(ctx, func(ctx context.Context, p *controller) {
		s.awaitRest(ctx, s.shorter(settleTime))
		m := s.settledMemory(ctx, p.usage)
		progress("rows 4, 6, 7: %d pods: ready after %v, %v", pods, p.ready, m)
		s.report.add(6, check{what: what, unit: "MB", ours: m.resident, note: m.String()}.atMost(memoryLimits[size]))
		if size == mostPods {
			s.report.add(7, check{what: "ready after restart, " + what, unit: "s", ours: p.ready.Seconds()}.atMost(10))
			s.report.count(7, "writes after a restart", float64(len(s.Audit.Since(mark).ByController().Writes())), 0)
			if s.opts.wants(4) {
				rests = s.watchAtRest(ctx, p)
			}
		}
	})
	s.reportAtRest(what, rests, mark)
}

// atRest holds what a controller did while only heartbeats came in.
type atRest struct {
	observed
	times int // as many status updates as kubelets send
}

// watchAtRest watches a controller while kubelets send what they send, and while they update their status ten times as
// often.
func (s *scene) watchAtRest(ctx context.Context, p *controller) (rests []atRest) {
	leases := s.createLeases(ctx)
	for _, times := range []int{1, 10} {
		var kubelets errgroup.Group
		beating, stop := context.WithCancel(ctx)
		defer stop()
		kubelets.Go(func() error { return s.heartbeat(beating, leases, times) })
		must(pause(ctx, s.shorter(warmUpTime)))
		o := s.observe(ctx, p, func(framework.Mark) {
			must(pause(ctx, s.shorter(watchTime)))
		})
		stop()
		must(kubelets.Wait())
		rests = append(rests, atRest{o, times})
	}
	return rests
}

// createLeases creates the Leases of all nodes.
func (s *scene) createLeases(ctx context.Context) []*coordinationv1.Lease {
	client := s.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	leases := make([]*coordinationv1.Lease, len(s.nodes))
	must(parallel(ctx, loadWorkers, len(leases), func(ctx context.Context, _, i int) (err error) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[i]}}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &s.nodes[i], new(int32(40))
		leases[i], err = client.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}))
	return leases
}

// heartbeat sends what the kubelets of all nodes send, evenly spread, until ctx is done: the renewals of their Leases,
// and so many times as often as real ones their status.
func (s *scene) heartbeat(ctx context.Context, leases []*coordinationv1.Lease, times int) error {
	client, err := kubernetes.NewForConfig(s.protobuf(kubeletAgent))
	if err != nil {
		return err
	}
	leaseClient := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var beats errgroup.Group
	beats.Go(func() error {
		return s.everyNode(ctx, leaseInterval, func(ctx context.Context, i int) (err error) {
			leases[i].Spec.RenewTime = new(metav1.NowMicro())
			leases[i], err = leaseClient.Update(ctx, leases[i], metav1.UpdateOptions{})
			return err
		})
	})
	beats.Go(func() error {
		return s.everyNode(ctx, statusInterval/time.Duration(times), func(ctx context.Context, i int) error {
			conditions, err := json.Marshal(nodeConditions(time.Now()))
			if err != nil {
				return err
			}
			patch := fmt.Appendf(nil, `{"status":{"conditions":%s}}`, conditions)
			_, err = client.CoreV1().Nodes().Patch(ctx, s.nodes[i], types.StrategicMergePatchType, patch,
				metav1.PatchOptions{}, "status")
			return err
		})
	})
	return beats.Wait()
}

// everyNode does something for each node once in an interval, evenly spread, until ctx is done.
func (s *scene) everyNode(ctx context.Context, every time.Duration, do func(ctx context.Context, i int) error) error {
	rate := float64(len(s.nodes)) / every.Seconds()
	err := paced(ctx, kubeletWorkers, math.MaxInt, rate, func(ctx context.Context, i int) error {
		return do(context.WithoutCancel(ctx), i%len(s.nodes)) // What has begun is finished.
	})
	if ctx.Err() != nil {
		return nil // It was stopped.
	}
	return err
}

// reportAtRest reports what a controller did at rest. The target is for what real kubelets send.
func (s *scene) reportAtRest(what string, rests []atRest, mark framework.Mark) {
	for _, r := range rests {
		elapsed := r.to.Sub(r.from).Seconds()
		rate := func(resource string) float64 {
			return float64(len(r.requests.By(kubeletAgent).Resource(resource))) / elapsed
		}
		at := fmt.Sprintf(" at rest, %s node updates/s", number(float64(len(s.nodes)*r.times)/statusInterval.Seconds()))
		cpu := check{what: "CPU" + at + ", " + what, unit: "% of a core", ours: 100 * r.cpu.Seconds() / elapsed,
			note: fmt.Sprintf("measured: %.1f node updates/s, %.0f Leases/s", rate("nodes/status"), rate("leases"))}
		if r.times == 1 {
			cpu = cpu.atMost(1)
		}
		s.report.add(4, cpu)
		s.report.count(4, "writes"+at, float64(len(r.requests.ByController().Writes())), 0)
		s.report.count(4, "LISTs"+at, s.listed(mark, r.observed), 0)
	}
}

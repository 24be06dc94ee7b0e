package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	heartbeatInterval = 10 * time.Second
	heartbeatClients  = 16
	restResync        = 10 * time.Second // so that there are several during the measurement
	restWarmUp        = 15 * time.Second
	restTime          = 60 * time.Second
)

// loaded is what a controller is like with everything in place.
type loaded struct {
	pods, services, nodes int
	ready                 time.Duration
	memory                memory
	startWrites           int
	rest                  atRest
}

// atRest is what a controller did while only heartbeats came in.
type atRest struct {
	from, to      time.Time
	cpu           float64 // fraction of one core
	writes, lists int
	heartbeats    float64 // per second
}

// measureLoaded measures rows 4, 6 and 7, with one control plane to which more and more pods are added.
func (b *bench) measureLoaded(ctx context.Context) error {
	return b.withCluster(ctx, func(c *cluster) error {
		s, err := b.newScene(ctx, c, b.n(5000))
		if err != nil {
			return err
		}
		owners, err := s.createLocalServices(ctx, s.namedLocalServices("app", 2))
		if err != nil {
			return err
		}
		if err := s.seedServices(ctx, owners); err != nil {
			return err
		}
		// The first start tells the status of the LocalServices.
		err = b.withController(ctx, c, nil, func(ctx context.Context, _ *controller, _ time.Duration) error {
			return s.audit.waitQuiet(ctx, conclusionTime)
		})
		if err != nil {
			return err
		}
		sizes := []int{100000}
		if b.wants(6) && !b.opts.smoke {
			sizes = []int{0, 20000, 50000, 100000}
		}
		footprint := &curve{Name: "memory", Title: fmt.Sprintf("Memory (RSS) with %d nodes and %d Services", len(s.nodes), 2*len(s.nodes)), X: "pods", Y: "MB", Lines: []line{{Name: "at rest"}, {Name: "peak"}}}
		pods := 0
		for i, size := range sizes {
			if err := s.seedMixedPods(ctx, i, b.n(size)-pods); err != nil {
				return err
			}
			pods = b.n(size)
			result, err := b.startLoaded(ctx, s, pods, i == len(sizes)-1)
			if err != nil {
				return err
			}
			footprint.add(float64(pods), result.memory.resident/1e6, result.memory.peak/1e6)
			b.reportLoaded(size, result)
		}
		if len(sizes) > 1 {
			b.report.curves = append(b.report.curves, footprint)
		}
		return nil
	})
}

// seedMixedPods puts pods in place of which a LocalService selects one half.
func (s *scene) seedMixedPods(ctx context.Context, batch, n int) error {
	if n <= 0 {
		return nil
	}
	if _, err := s.seedPods(ctx, "app000", fmt.Sprintf("selected%d", batch), n/2, podLabelled); err != nil {
		return err
	}
	_, err := s.seedPods(ctx, "another", fmt.Sprintf("other%d", batch), n-n/2, podRunning)
	return err
}

// startLoaded starts a controller with everything in place, and in the end, if told to, watches it at rest.
func (b *bench) startLoaded(ctx context.Context, s *scene, pods int, last bool) (loaded, error) {
	l := loaded{pods: pods, services: 2 * len(s.nodes), nodes: len(s.nodes)}
	ctx, cancel := context.WithTimeout(ctx, loadedTimeout)
	defer cancel()
	mark, err := s.audit.mark()
	if err != nil {
		return l, err
	}
	err = b.withController(ctx, s.cluster, []string{"-resync-period=" + b.shorter(restResync).String()}, func(ctx context.Context, p *controller, ready time.Duration) (err error) {
		l.ready = ready
		if err := s.audit.waitQuiet(ctx, b.shorter(settleTime)); err != nil {
			return err
		}
		if l.memory, err = b.settledMemory(ctx, p); err != nil {
			return err
		}
		requests, err := s.audit.since(mark)
		l.startWrites = requests.count(ourWrites)
		progress("rows 4, 6, 7: %d pods: ready after %v, %v", pods, ready, l.memory)
		if err != nil || !last || !b.wants(4) {
			return err
		}
		return b.profiled(ctx, p, "row4", func() error { return b.watchAtRest(ctx, s, p, &l.rest) })
	})
	if err != nil {
		return l, err
	}
	requests, err := s.audit.since(mark)
	l.rest.lists = requests.count(ourLists(l.rest.from, l.rest.to))
	return l, err
}

// watchAtRest lets all nodes send heartbeats, and measures what they cost the controller.
func (b *bench) watchAtRest(ctx context.Context, s *scene, p *controller, r *atRest) error {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	var beats int
	go func() {
		var err error
		beats, err = s.heartbeat(beating)
		result <- err
	}()
	if err := pause(ctx, b.shorter(restWarmUp)); err != nil {
		return err
	}
	mark, err := s.audit.mark()
	if err != nil {
		return err
	}
	r.from = time.Now()
	cpu, err := p.usage(func() error { return pause(ctx, b.shorter(restTime)) })
	if err != nil {
		return err
	}
	r.to = time.Now()
	stop()
	if err := <-result; err != nil {
		return err
	}
	r.cpu = cpu.Seconds() / r.to.Sub(r.from).Seconds()
	r.heartbeats = float64(beats) / (r.to.Sub(r.from) + b.shorter(restWarmUp)).Seconds()
	requests, err := s.audit.since(mark)
	r.writes = requests.count(ourWrites)
	return err
}

// heartbeat patches the status of every node every heartbeatInterval, evenly spread, until ctx is done. It returns how
// often it did.
func (s *scene) heartbeat(ctx context.Context) (beats int, err error) {
	var clients []kubernetes.Interface
	for range heartbeatClients {
		client, err := kubernetes.NewForConfig(s.config(heartbeatAgent))
		if err != nil {
			return 0, fmt.Errorf("make clients for heartbeats: %w", err)
		}
		clients = append(clients, client)
	}
	began := time.Now()
	done := make([]int, len(clients))
	err = parallel(ctx, len(clients), 1<<62, func(ctx context.Context, worker, i int) error {
		due := began.Add(heartbeatInterval * time.Duration(i) / time.Duration(len(s.nodes)))
		if pause(ctx, time.Until(due)) != nil {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": nodeConditions(time.Now())}})
		if err != nil {
			return fmt.Errorf("encode a heartbeat: %w", err)
		}
		node := s.nodes[i%len(s.nodes)]
		_, err = clients[worker].CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("send the heartbeat of node %s: %w", node, err)
		}
		done[worker]++
		return nil
	})
	for _, n := range done {
		beats += n
	}
	if ctx.Err() != nil {
		err = nil // It was told to stop.
	}
	return beats, err
}

func (b *bench) reportLoaded(size int, l loaded) {
	what := fmt.Sprintf("%d pods, %d nodes, %d Services", l.pods, l.nodes, l.services)
	if b.wants(6) {
		memory := check{Row: 6, What: what, Unit: "MB", Ours: l.memory.resident / 1e6, Note: l.memory.String()}
		if limit := map[int]float64{20000: 60, 100000: 200}[size]; limit > 0 {
			memory.Limit, memory.Of = limit, ofOurs
		}
		b.report.add(memory)
	}
	if size != 100000 {
		return
	}
	if b.wants(7) {
		b.report.add(check{Row: 7, What: "ready after a restart, " + what, Unit: "s", Ours: l.ready.Seconds(), Limit: 10, Of: ofOurs})
		b.report.count(7, "writes after a restart", float64(l.startWrites), 0)
	}
	if b.wants(4) {
		b.report.add(check{Row: 4, What: "CPU at rest, " + what, Unit: "% of a core", Ours: 100 * l.rest.cpu, Limit: 2, Of: ofOurs,
			Note: fmt.Sprintf("%.0f heartbeats/s, resync every %v", l.rest.heartbeats, b.shorter(restResync))})
		b.report.count(4, "writes at rest", float64(l.rest.writes), 0)
		b.report.count(4, "LISTs at rest", float64(l.rest.lists), 0)
	}
}

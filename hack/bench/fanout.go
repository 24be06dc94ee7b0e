package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	fanOutRounds        = 5
	growthLocalServices = 20
	// fanOutTimeout bounds one fan-out, at a hundred Services a second for the largest.
	fanOutTimeout = 20 * time.Minute
	fanOutLimit   = 1.15 // of the time that bare clients take
	growthLimit   = 1.25
	// growthMemory limits the memory of the controller after the largest fan-out, in MB.
	growthMemory = 200
	// flat is the ratio up to which a cost that should not grow counts as flat.
	flat = 1.25
)

// fanOut lets the controller make the Services of n new LocalServices on the nodes of the scene.
func (s *scene) fanOut(ctx context.Context, p *controller, prefix string, n int) compared {
	ctx, cancel := context.WithTimeout(ctx, fanOutTimeout)
	defer cancel()
	o := s.observe(ctx, p, func(mark framework.Mark) {
		s.createLocalServices(ctx, prefix, n)
		try(s.await(ctx, mark, n*len(s.nodes), createdServices))
	})
	elapsed := serviceCreates(o.requests).Last().Sub(o.requests.Resource("localservices").Verb("create").First())
	return compared{observed: o, elapsed: elapsed}
}

// floorFanOut is how long bare clients take to make the Services of n new LocalServices.
func (s *scene) floorFanOut(ctx context.Context, prefix string, n int) time.Duration {
	template := s.templateService(ctx)
	var services []*corev1.Service
	for _, owner := range s.createLocalServices(ctx, prefix, n) {
		for _, node := range s.nodes {
			services = append(services, template.copyFor(owner, node))
		}
	}
	return s.floor(ctx, len(services), func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().Services(s.name).Create(ctx, services[i], createOptions)
		return err
	})
}

// statusRate is how many status writes a second there were.
func (c compared) statusRate() float64 { return c.count(statusWrites) / max(1, c.seconds()) }

// measureFanOut measures row 1: rounds of bare clients and of the controller, in turn, at several distances from the
// API server.
func measureFanOut(ctx context.Context, b *bench) {
	b.withScene(ctx, b.n(1000), func(s *scene) {
		for _, distance := range b.distances() {
			s.from(distance, func() {
				s.compareFanOut(ctx, 1, fmt.Sprintf("%v away", distance), fanOutLimit, fanOutRounds)
			})
		}
	})
}

// compareFanOut lets bare clients and the controller make the Services of one LocalService in turn.
func (s *scene) compareFanOut(ctx context.Context, row int, where string, limit float64, n int) {
	b, mark := s.bench, s.Audit.Mark()
	what := fmt.Sprintf("1 LocalService × %d nodes, %s", len(s.nodes), where)
	rounds := b.compareRounds(row, what, limit, n, func(int) (c compared) {
		var floor time.Duration
		s.besideStandby(ctx, func() { floor = s.floorFanOut(ctx, s.newApp(), 1) })
		s.withController(ctx, func(ctx context.Context, p *controller) { c = s.fanOut(ctx, p, s.newApp(), 1) })
		c.floor = floor
		return c
	})
	created, others, listed := 0.0, 0.0, 0.0
	for _, c := range rounds {
		created += c.count(serviceCreates)
		others += c.count(otherWrites)
		listed += s.listed(mark, c.observed)
	}
	b.report.count(row, what+": Services created a round", created/float64(len(rounds)), float64(len(s.nodes)))
	b.report.count(row, what+": other writes of Services", others, 0)
	b.report.count(row, what+": LISTs after the start", listed, 0)
	statusRate := samplesOf(rounds, compared.statusRate).max()
	b.report.add(row, check{what: what + ": status writes", unit: "/s", ours: statusRate}.atMost(3))
}

// growth holds what one size cost.
type growth struct {
	compared
	services float64
	memory   memory
}

// measureGrowth measures row 2: more and more Services, each time on new control planes, so that each begins alike.
func measureGrowth(ctx context.Context, b *bench) {
	sizes := []int{50, 500, 5000} // nodes
	if b.opts.smoke {
		sizes = sizes[2:]
	}
	var costs []growth
	for i, nodes := range sizes {
		g := b.grow(ctx, b.n(nodes))
		costs = append(costs, g)
		b.reportGrowth(g, b.n(nodes), i == len(sizes)-1)
	}
	if len(costs) == 3 {
		b.reportFlatness(costs[0], costs[1], costs[2])
	}
}

// grow lets bare clients fan out on one new control plane, and the controller on another.
func (b *bench) grow(ctx context.Context, nodes int) growth {
	g := growth{services: float64(growthLocalServices * nodes)}
	var floor time.Duration
	b.withScene(ctx, nodes, func(s *scene) {
		s.besideStandby(ctx, func() { floor = s.floorFanOut(ctx, "app", growthLocalServices) })
	})
	b.withScene(ctx, nodes, func(s *scene) {
		s.withController(ctx, func(ctx context.Context, p *controller) {
			s.awaitWatch(ctx)
			g.compared = s.fanOut(ctx, p, "app", growthLocalServices)
			g.memory = s.settledMemory(ctx, p.usage)
		})
	})
	g.floor = floor
	progress("row 2, %v Services: bare clients %v, controller %v", g.services, g.floor, g.elapsed)
	return g
}

// awaitWatch waits until the controller receives events of LocalServices: for some seconds after the creation of the
// CustomResourceDefinition, the API server may send them two seconds late, which does not affect bare clients.
func (s *scene) awaitWatch(ctx context.Context) {
	mark := s.Audit.Mark()
	s.createLocalServices(ctx, "without-nodes", 1, func(ls *v1alpha1.LocalService) {
		ls.Spec.NodeSelector = map[string]string{"is": "nowhere"}
	})
	try(s.await(ctx, mark, 1, succeeded(statusWrites)))
}

// reportGrowth reports one size; the target is for the largest.
func (b *bench) reportGrowth(g growth, nodes int, largest bool) {
	what := fmt.Sprintf("%d LocalServices × %d nodes", growthLocalServices, nodes)
	took := check{what: what, unit: "s", ours: g.seconds(), floor: g.floorSeconds(), ratio: g.ratio()}
	memory := check{what: what + ": memory", unit: "MB", ours: g.memory.resident, note: g.memory.String()}
	if largest {
		took, memory = took.atMostTimes(growthLimit), memory.atMost(growthMemory)
	}
	b.report.add(2, took)
	b.report.count(2, what+": Services created", g.count(serviceCreates), g.services)
	b.report.count(2, what+": other writes of Services", g.count(otherWrites), 0)
	b.report.add(2,
		check{what: what + ": status writes", unit: "/s", ours: g.statusRate()},
		check{what: what + ": CPU of the controller", unit: "s", ours: g.cpuSeconds()},
		memory,
	)
}

// reportFlatness compares what a Service costs where there are many with what it costs where there are fewer.
func (b *bench) reportFlatness(few, some, many growth) {
	cpu := func(g growth) float64 { return milliseconds(g.cpu) / g.services }
	memory := func(g growth) float64 { // kB for each Service more than the fewest
		return (g.memory.resident - few.memory.resident) * 1000 / (g.services - few.services)
	}
	each, fewer := fmt.Sprintf(" per Service, of %v", many.services), fmt.Sprintf("%v Services", some.services)
	b.report.add(2,
		compareCosts("CPU of the controller"+each, "ms", cpu(many), cpu(some), fewer).atMostTimes(flat),
		compareCosts("memory"+each, "kB", memory(many), memory(some), fewer).atMostTimes(flat),
	)
}

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	fanOutRounds = 9
	// fanOutTimeout bounds one fan-out, at a hundred Services a second for the largest.
	fanOutTimeout = 20 * time.Minute
	// conclusionTime is how long the controller rests before a piece of its work counts as done.
	conclusionTime = 500 * time.Millisecond
)

// fanOut is what the controller did for some LocalServices, by the API server's clock and its log.
type fanOut struct {
	elapsed      time.Duration // from the first LocalService received to the last Service created
	cpu          time.Duration
	created      int
	statusWrites int
	otherWrites  requests
	begun, ended time.Time
}

// fanOutOnce has the controller make the Services of LocalServices on the nodes of a scene.
func (b *bench) fanOutOnce(ctx context.Context, s *scene, p *controller, wanted []*v1alpha1.LocalService) (f fanOut, err error) {
	ctx, cancel := context.WithTimeout(ctx, fanOutTimeout)
	defer cancel()
	if err := s.audit.waitQuiet(ctx, conclusionTime); err != nil {
		return f, err
	}
	mark, err := s.audit.mark()
	if err != nil {
		return f, err
	}
	creates := all(byUs, verb("create", "services"), in(s.name))
	f.cpu, err = p.usage(func() error {
		if _, err := s.createLocalServices(ctx, wanted); err != nil {
			return err
		}
		if _, err := s.audit.waitFor(ctx, mark, len(wanted)*len(s.nodes), "Services", all(creates, done)); err != nil {
			return err
		}
		return s.audit.waitQuiet(ctx, conclusionTime)
	})
	if err != nil {
		return f, err
	}
	requests, err := s.audit.since(mark)
	if err != nil {
		return f, err
	}
	made := requests.where(creates)
	f.begun, f.ended = requests.where(all(by(loadAgent), verb("create", "localservices"))).first(), made.last()
	f.elapsed = f.ended.Sub(f.begun)
	f.created = len(made)
	f.statusWrites = requests.count(all(byUs, verb("patch", "localservices/status")))
	f.otherWrites = requests.where(ourServiceChanges)
	return f, nil
}

// floorOnce is how long bare clients take to make the Services of LocalServices.
func (b *bench) floorOnce(ctx context.Context, s *scene, wanted []*v1alpha1.LocalService) (time.Duration, error) {
	owners, err := s.createLocalServices(ctx, wanted)
	if err != nil {
		return 0, err
	}
	services, err := s.services(owners)
	if err != nil {
		return 0, err
	}
	return b.floorCreate(ctx, s.cluster, services)
}

// measureFanOut measures row 1: rounds of bare clients and of the controller, in turn.
func (b *bench) measureFanOut(ctx context.Context) error {
	return b.withCluster(ctx, func(c *cluster) error {
		s, err := b.newScene(ctx, c, b.n(1000))
		if err != nil {
			return err
		}
		var ours []fanOut
		var floors []time.Duration
		var ratios []float64
		lists := 0
		for round := range b.rounds(fanOutRounds) + 1 {
			floor, err := b.floorOnce(ctx, s, s.namedLocalServices(fmt.Sprintf("floor%d-", round), 1))
			if err != nil {
				return err
			}
			var f fanOut
			err = b.withController(ctx, c, nil, func(ctx context.Context, p *controller, _ time.Duration) (err error) {
				f, err = b.fanOutOnce(ctx, s, p, s.namedLocalServices(fmt.Sprintf("ours%d-", round), 1))
				return err
			})
			if err != nil {
				return err
			}
			progress("row 1, round %d: bare clients %v, controller %v", round, floor, f.elapsed)
			if round == 0 {
				continue // It warms up the API server.
			}
			ours, floors, ratios = append(ours, f), append(floors, floor), append(ratios, ratio(f.elapsed, floor))
			requests, err := c.audit.since(0)
			if err != nil {
				return err
			}
			lists += requests.count(ourLists(f.begun, f.ended.Add(conclusionTime)))
		}
		b.reportFanOut(s, ours, floors, ratios, lists)
		return nil
	})
}

func (b *bench) reportFanOut(s *scene, ours []fanOut, floors []time.Duration, ratios []float64, lists int) {
	var times, perSecond, cpu []float64
	created, changes := 0, 0
	for _, f := range ours {
		times, cpu = append(times, f.elapsed.Seconds()), append(cpu, f.cpu.Seconds())
		perSecond = append(perSecond, float64(f.statusWrites)/max(1, f.elapsed.Seconds()))
		created += f.created
		changes += len(f.otherWrites)
	}
	what := fmt.Sprintf("1 LocalService × %d nodes", len(s.nodes))
	b.report.add(check{Row: 1, What: what, Unit: "s", Ours: median(times), Floor: median(seconds(floors)), Ratio: median(ratios), Limit: 1.25, Of: ofRatio,
		Note: fmt.Sprintf("median of %d rounds, ratio %.2f to %.2f", len(ours), quantile(ratios, 0), quantile(ratios, 1))})
	b.report.count(1, "Services created a round", float64(created)/float64(len(ours)), float64(len(s.nodes)))
	b.report.count(1, "other writes of Services", float64(changes), 0)
	b.report.count(1, "LISTs after the start", float64(lists), 0)
	b.report.add(check{Row: 1, What: "status writes", Unit: "/s", Ours: quantile(perSecond, 1), Limit: 3, Of: ofOurs})
	b.report.add(check{Row: 1, What: "CPU of the controller for it", Unit: "s", Ours: median(cpu)})
}

// rounds is how often to repeat, once in a smoke run.
func (b *bench) rounds(full int) int {
	if b.opts.smoke {
		return 1
	}
	return full
}

// measureGrowth measures row 2: more and more Services, each time on new control planes, so that each begins alike.
func (b *bench) measureGrowth(ctx context.Context) error {
	const localServices = 20
	sizes := []int{50, 500, 5000} // nodes
	if b.opts.smoke {
		sizes = sizes[2:]
	}
	times := &curve{Name: "fanout", Title: "Time per Service", X: "Services", Logarithmic: true, Y: "ms", Lines: []line{{Name: "controller"}, {Name: "bare clients"}}}
	footprint := &curve{Name: "fanout-memory", Title: "Memory (RSS) of the controller", X: "Services", Logarithmic: true, Y: "MB", Lines: []line{{Name: "after the fan-out"}, {Name: "peak"}}}
	var costs []growth
	for _, size := range sizes {
		g, err := b.grow(ctx, localServices, b.n(size))
		if err != nil {
			return err
		}
		services := float64(g.services)
		times.add(services, g.ours.elapsed.Seconds()*1000/services, g.floor.Seconds()*1000/services)
		footprint.add(services, g.memory.resident/1e6, g.memory.peak/1e6)
		costs = append(costs, g)
		b.reportGrowth(g, size == slices.Max(sizes))
	}
	if len(costs) == 3 {
		b.reportFlatness(costs[0], costs[1], costs[2])
	}
	b.report.curves = append(b.report.curves, times, footprint)
	return nil
}

// reportFlatness compares what a Service costs where there are many with what it costs where there are fewer.
func (b *bench) reportFlatness(few, some, many growth) {
	perService := func(g growth) float64 { return g.ours.cpu.Seconds() * 1000 / float64(g.services) }
	further := func(g growth) float64 { // kB for each Service more than the fewest
		return (g.memory.resident - few.memory.resident) / 1000 / float64(g.services-few.services)
	}
	note := fmt.Sprintf("the column of the floor is that of %d Services", some.services)
	for _, cost := range []struct {
		what, unit string
		of         func(growth) float64
	}{{"CPU of the controller", "ms", perService}, {"memory", "kB", further}} {
		b.report.add(check{Row: 2, What: fmt.Sprintf("%s per Service, of %d", cost.what, many.services), Unit: cost.unit,
			Ours: cost.of(many), Floor: cost.of(some), Ratio: divide(cost.of(many), cost.of(some)), Limit: flat, Of: ofRatio, Note: note})
	}
}

// flat is the ratio up to which a cost that should not grow counts as flat.
const flat = 1.25

// growth is what one size cost.
type growth struct {
	localServices, nodes, services int
	floor                          time.Duration
	ours                           fanOut
	memory                         memory
}

// grow fans out on one new control plane, and has bare clients do the same on another.
func (b *bench) grow(ctx context.Context, localServices, nodes int) (growth, error) {
	g := growth{localServices: localServices, nodes: nodes, services: localServices * nodes}
	err := b.withCluster(ctx, func(c *cluster) error {
		s, err := b.newScene(ctx, c, nodes)
		if err != nil {
			return err
		}
		g.floor, err = b.floorOnce(ctx, s, s.namedLocalServices("app", localServices))
		return err
	})
	if err != nil {
		return g, err
	}
	err = b.withCluster(ctx, func(c *cluster) error {
		s, err := b.newScene(ctx, c, nodes)
		if err != nil {
			return err
		}
		return b.withController(ctx, c, nil, func(ctx context.Context, p *controller, _ time.Duration) error {
			return b.profiled(ctx, p, fmt.Sprintf("row2-%d", g.services), func() (err error) {
				if g.ours, err = b.fanOutOnce(ctx, s, p, s.namedLocalServices("app", localServices)); err != nil {
					return err
				}
				g.memory, err = b.settledMemory(ctx, p)
				return err
			})
		})
	})
	progress("row 2, %d Services: bare clients %v, controller %v", g.services, g.floor, g.ours.elapsed)
	return g, err
}

// reportGrowth reports one size; the target is for the largest.
func (b *bench) reportGrowth(g growth, largest bool) {
	what := fmt.Sprintf("%d LocalServices × %d nodes", g.localServices, g.nodes)
	took := check{Row: 2, What: what, Unit: "s", Ours: g.ours.elapsed.Seconds(), Floor: g.floor.Seconds(), Ratio: ratio(g.ours.elapsed, g.floor)}
	if largest {
		took.Limit, took.Of = 1.25, ofRatio
	}
	b.report.add(took)
	b.report.count(2, what+": Services created", float64(g.ours.created), float64(g.services))
	b.report.count(2, what+": other writes of Services", float64(len(g.ours.otherWrites)), 0)
	b.report.add(check{Row: 2, What: what + ": status writes", Unit: "/s", Ours: float64(g.ours.statusWrites) / max(1, g.ours.elapsed.Seconds())})
	b.report.add(check{Row: 2, What: what + ": CPU of the controller", Unit: "s", Ours: g.ours.cpu.Seconds()})
	b.report.add(check{Row: 2, What: what + ": memory", Unit: "MB", Ours: g.memory.resident / 1e6, Note: g.memory.String()})
}

package main

import (
	"context"
	"fmt"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	addedNodes         = 30
	addedLocalServices = 100
)

// measureNodeAdded measures row 3: nodes are added where there are few, and where there are many.
func measureNodeAdded(ctx context.Context, b *bench) {
	few, many := b.n(500), b.n(5000)
	cpuFew, cpuMany := b.addNodes(ctx, few), b.addNodes(ctx, many)
	what := fmt.Sprintf("CPU per node added to %d", many)
	b.report.add(3, compareCosts(what, "ms", cpuMany, cpuFew, fmt.Sprintf("%d nodes", few)).atMostTimes(2))
}

// addNodes adds nodes one after the other, each when the controller rests again. It returns the CPU time for each, in
// milliseconds.
func (b *bench) addNodes(ctx context.Context, nodes int) (cpu float64) {
	b.withScene(ctx, nodes, func(s *scene) {
		localServices := b.n(addedLocalServices)
		s.seedLocalServices(ctx, localServices)
		progress("row 3: %d nodes, %d Services are in place", nodes, nodes*localServices)
		var o observed
		var latencies samples
		var m memory
		mark := s.Audit.Mark()
		s.withController(ctx, func(ctx context.Context, p *controller) {
			progress("row 3: ready after %v", p.ready)
			s.awaitRest(ctx, s.shorter(settleTime))
			o = s.observe(ctx, p, func(framework.Mark) {
				for range s.rounds(addedNodes) {
					latencies = append(latencies, s.addNodeAndWait(ctx, localServices))
				}
			})
			m = p.memory()
		})
		each := func(picked pick) float64 { return o.count(picked) / float64(len(latencies)) }
		cpu = milliseconds(o.cpu) / float64(len(latencies))
		at := fmt.Sprintf("1 node added to %d × %d LocalServices: ", nodes, localServices)
		note := fmt.Sprintf("%.0f status writes a node; memory %v", each(statusWrites), m)
		b.report.count(3, at+"Services created", each(serviceCreates), float64(localServices))
		b.report.count(3, at+"other writes of Services", each(otherWrites), 0)
		b.report.count(3, at+"LISTs", s.listed(mark, o), 0)
		b.report.add(3,
			latencies.longest(at+"last Service after").atMost(1),
			check{what: at + "CPU", unit: "ms", ours: cpu, note: note},
		)
	})
	return cpu
}

// addNodeAndWait is how many seconds after a node was received the last of its Services was created.
func (s *scene) addNodeAndWait(ctx context.Context, services int) float64 {
	ctx, cancel := context.WithTimeout(ctx, framework.DefaultTimeout)
	defer cancel()
	mark := s.Audit.Mark()
	s.addNode(ctx)
	created := try(s.await(ctx, mark, services, createdServices))
	s.awaitRest(ctx, restTime)
	return created.Last().Sub(s.Audit.Since(mark).Resource("nodes").Verb("create").First()).Seconds()
}

package main

import (
	"context"
	"fmt"
	"time"
)

const (
	addedNodes = 30
	// loadedTimeout bounds how long the controller takes to be ready and at rest with everything in place.
	loadedTimeout = 10 * time.Minute
)

// nodesAdded is what adding nodes one after the other cost.
type nodesAdded struct {
	nodes, localServices int
	created, changes     int
	statusWrites         int
	latencies            []time.Duration // from the node received to the last of its Services created
	cpu                  time.Duration   // per node
	memory               memory
	lists                int
}

// measureNodeAdded measures row 3: nodes are added where there are few, and where there are many.
func (b *bench) measureNodeAdded(ctx context.Context) error {
	costs := &curve{Name: "node-added", Title: "CPU per added node, with 100 LocalServices", X: "nodes", Y: "ms", Lines: []line{{Name: "controller"}}}
	var results []nodesAdded
	for _, size := range []int{500, 5000} {
		var result nodesAdded
		err := b.withCluster(ctx, func(c *cluster) (err error) {
			result, err = b.addNodes(ctx, c, b.n(size), b.n(100))
			return err
		})
		if err != nil {
			return err
		}
		costs.add(float64(result.nodes), result.cpu.Seconds()*1000)
		b.reportNodesAdded(result)
		results = append(results, result)
	}
	few, many := results[0], results[1]
	b.report.add(check{Row: 3, What: fmt.Sprintf("CPU per node at %d nodes against that at %d", many.nodes, few.nodes), Unit: "ms",
		Ours: many.cpu.Seconds() * 1000, Floor: few.cpu.Seconds() * 1000, Ratio: ratio(many.cpu, few.cpu), Limit: 2, Of: ofRatio, Note: "the column of the floor is that of the few nodes"})
	b.report.curves = append(b.report.curves, costs)
	return nil
}

func (b *bench) addNodes(ctx context.Context, c *cluster, nodes, localServices int) (nodesAdded, error) {
	result := nodesAdded{nodes: nodes, localServices: localServices}
	s, err := b.newScene(ctx, c, nodes)
	if err != nil {
		return result, err
	}
	owners, err := s.createLocalServices(ctx, s.namedLocalServices("app", localServices))
	if err != nil {
		return result, err
	}
	if err := s.seedServices(ctx, owners); err != nil {
		return result, err
	}
	progress("row 3: %d nodes, %d Services are in place", nodes, nodes*localServices)
	var from, to time.Time
	err = b.withController(ctx, c, nil, func(ctx context.Context, p *controller, ready time.Duration) error {
		progress("row 3: ready after %v", ready)
		if err := s.audit.waitQuiet(ctx, b.shorter(settleTime)); err != nil {
			return err
		}
		from = time.Now()
		err := b.profiled(ctx, p, fmt.Sprintf("row3-%d", nodes), func() error {
			return b.addNodesTo(ctx, s, p, &result)
		})
		to = time.Now()
		if err == nil {
			result.memory, err = p.memory()
		}
		return err
	})
	if err != nil {
		return result, err
	}
	requests, err := c.audit.since(0)
	result.lists = requests.count(ourLists(from, to))
	return result, err
}

// addNodesTo adds nodes one after the other, each when the controller rests again.
func (b *bench) addNodesTo(ctx context.Context, s *scene, p *controller, result *nodesAdded) error {
	mark, err := s.audit.mark()
	if err != nil {
		return err
	}
	cpu, err := p.usage(func() error {
		for range b.rounds(addedNodes) {
			latency, err := s.addNodeAndWait(ctx, result.localServices)
			if err != nil {
				return err
			}
			result.latencies = append(result.latencies, latency)
		}
		return nil
	})
	if err != nil {
		return err
	}
	result.cpu = cpu / time.Duration(len(result.latencies))
	requests, err := s.audit.since(mark)
	result.created = requests.count(all(byUs, verb("create", "services")))
	result.changes = requests.count(ourServiceChanges)
	result.statusWrites = requests.count(all(byUs, verb("patch", "localservices/status")))
	return err
}

// addNodeAndWait returns how long after the node the last of its Services was created.
func (s *scene) addNodeAndWait(ctx context.Context, services int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	mark, err := s.audit.mark()
	if err != nil {
		return 0, err
	}
	if _, err := s.addNode(ctx); err != nil {
		return 0, err
	}
	created, err := s.audit.waitFor(ctx, mark, services, "Services of a new node", all(byUs, verb("create", "services"), done))
	if err != nil {
		return 0, err
	}
	if err := s.audit.waitQuiet(ctx, conclusionTime); err != nil {
		return 0, err
	}
	requests, err := s.audit.since(mark)
	return created.last().Sub(requests.where(all(by(loadAgent), verb("create", "nodes"))).first()), err
}

func (b *bench) reportNodesAdded(r nodesAdded) {
	at := fmt.Sprintf("1 node added to %d × %d LocalServices", r.nodes, r.localServices)
	events := float64(len(r.latencies))
	b.report.count(3, at+": Services created", float64(r.created)/events, float64(r.localServices))
	b.report.count(3, at+": other writes of Services", float64(r.changes), 0)
	b.report.count(3, at+": LISTs", float64(r.lists), 0)
	b.report.add(check{Row: 3, What: at + ": last Service after", Unit: "s", Ours: quantile(seconds(r.latencies), 1), Limit: 1, Of: ofOurs,
		Note: fmt.Sprintf("longest of %d, median %.2f s", len(r.latencies), median(seconds(r.latencies)))})
	b.report.add(check{Row: 3, What: at + ": CPU", Unit: "ms", Ours: r.cpu.Seconds() * 1000, Note: fmt.Sprintf("%.0f status writes a node; memory %v", float64(r.statusWrites)/events, r.memory)})
}

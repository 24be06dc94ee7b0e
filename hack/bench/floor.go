package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// floorAgent is the user agent of the bare clients.
const floorAgent = "bench-floor"

// compared is how long the same work took the controller and bare clients.
type compared struct {
	observed
	elapsed, floor time.Duration // from the first request received to the last one answered
}

func (c compared) seconds() float64      { return c.elapsed.Seconds() }
func (c compared) floorSeconds() float64 { return c.floor.Seconds() }
func (c compared) cpuSeconds() float64   { return c.cpu.Seconds() }
func (c compared) ratio() float64        { return divide(c.seconds(), c.floorSeconds()) }

// compareRounds lets bare clients and the controller do the same work in rounds, reports the medians as two lines of a
// row, and returns the rounds. The first one, which warms up the API server, does not count.
func (b *bench) compareRounds(row int, what string, limit float64, rounds int, do func(round int) compared) []compared {
	var counted []compared
	for round := range b.rounds(rounds) + 1 {
		c := do(round)
		progress("row %d, round %d: bare clients %v, controller %v", row, round, c.floor, c.elapsed)
		if round > 0 {
			counted = append(counted, c)
		}
	}
	ratios := samplesOf(counted, compared.ratio)
	took := check{what: what, unit: "s", ratio: ratios.median(), ours: samplesOf(counted, compared.seconds).median(),
		floor: samplesOf(counted, compared.floorSeconds).median(),
		note:  fmt.Sprintf("median of %d rounds, ratio %.2f to %.2f", len(counted), ratios.min(), ratios.max())}
	b.report.add(row, took.atMostTimes(limit),
		check{what: "CPU of the controller for it", unit: "s", ours: samplesOf(counted, compared.cpuSeconds).median()})
	return counted
}

// floorRequest is a request of a bare client.
type floorRequest func(ctx context.Context, client kubernetes.Interface, i int) error

// floor has plain parallel clients do n requests, and returns how long that took at the API server. They are as many as
// the controller writes at the same time: no throttle, protobuf, a connection for each. They are what nobody can be
// faster than with the same number of requests under way.
func (s *scene) floor(ctx context.Context, n int, do floorRequest) time.Duration {
	clients := s.floorClients()
	mark := s.Audit.Mark()
	must(parallel(ctx, len(clients), n, func(ctx context.Context, worker, i int) error {
		return do(ctx, clients[worker], i)
	}))
	requests := s.Audit.Since(mark).By(floorAgent).Where(framework.Succeeded)
	if len(requests) != n {
		must(fmt.Errorf("the audit log has %d of the %d requests of bare clients", len(requests), n))
	}
	return span(requests)
}

// floorClients are bare clients that are connected, as the controller is when its work begins.
func (s *scene) floorClients() (clients []kubernetes.Interface) {
	for range writeConcurrency {
		config := s.protobuf(floorAgent)
		config.Host = cmp.Or(s.address, config.Host)
		config.Dial = new(net.Dialer).DialContext // Clients that dial for themselves share no connection.
		client := try(kubernetes.NewForConfig(config))
		try(client.Discovery().ServerVersion())
		clients = append(clients, client)
	}
	return clients
}

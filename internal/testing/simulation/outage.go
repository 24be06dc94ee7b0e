package simulation

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// rolesTime is how long after its start the API server may know no roles yet.
	rolesTime = time.Second
	// leaseTime is how long a replica waits at most for the Lease of one that could not give it back.
	leaseTime = 2*time.Minute + 30*time.Second
)

// errAway is the error of a client whose API server does not run.
var errAway = fmt.Errorf("simulated: %w", &net.OpError{Op: "dial", Net: "tcp",
	Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

// outage says until when the API server does not run, what becomes of requests meanwhile, and until when it then refuses
// everything, because it knows no roles.
type outage struct {
	away, denies time.Time
	outcome      Outcome
}

// Stop stops the API server for a while: answers under way are lost, and watches end. No connection is made, or a load
// balancer answers.
func (s *APIServer) Stop(during, denies time.Duration, outcome Outcome) {
	s.mu.Lock()
	s.outage.outcome = outcome
	s.outage.away = later(s.outage.away, time.Now().Add(during))
	s.outage.denies = s.outage.away.Add(denies)
	endpoints := s.endpoints
	s.mu.Unlock()
	for _, e := range endpoints {
		e.breakAll()
	}
}

// outcome returns what an outage makes of every request, "" if there is none.
func (s *APIServer) outcome() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case now.Before(s.outage.away):
		return s.outage.outcome
	case now.Before(s.outage.denies):
		return Denied
	}
	return ""
}

func (s *APIServer) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.outage.away)
}

// restartServer stops the API server after a moment, which On says, for a while. How is what a load balancer answers
// meanwhile, or "roles" if the API server refuses everything for a moment when it is back.
func restartServer(_ context.Context, w *world, s Step) {
	denies, settled, outcome := time.Duration(0), settleTime, cmp.Or(Outcome(s.How), Away)
	if s.How == "roles" {
		denies, outcome = rolesTime, Away
	}
	if w.history.Replicas > 1 {
		settled += leaseTime
	}
	after, _ := time.ParseDuration(s.On) // at once if it is none
	away := after + s.For + denies
	w.disturb(away, settled)
	w.guard.excuse(away, away)
	if denies > 0 {
		w.guard.deny(after+s.For, denies)
	}
	time.AfterFunc(after, func() { w.server.Stop(s.For, denies, outcome) })
}

package simulation

import (
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

// outage says until when the API server does not run, and until when it then refuses everything, because it knows no
// roles.
type outage struct{ away, denies time.Time }

// stop stops the API server for a while: no connection is made, answers under way are lost, and watches end.
func (s *APIServer) stop(during, denies time.Duration) {
	s.mu.Lock()
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
		return Away
	case now.Before(s.outage.denies):
		return Denied
	}
	return ""
}

// restartServer stops the API server after a moment, which On says, for a while. When it is back, it refuses everything
// for a moment if How says so.
func restartServer(_ context.Context, w *world, s Step) {
	denies, settled := time.Duration(0), settleTime
	if s.How == "roles" {
		denies = rolesTime
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
	time.AfterFunc(after, func() { w.server.stop(s.For, denies) })
}

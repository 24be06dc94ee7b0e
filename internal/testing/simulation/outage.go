package simulation

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	// reconnectTime is how long client-go waits at most after an outage until it connects a watch again.
	reconnectTime = time.Minute
	// rolesTime is how long after its start the API server may know no roles yet.
	rolesTime = time.Second
	// leaveTime is how long is waited for the write at which it stops.
	leaveTime = time.Second
)

// errAway is the error of a client whose API server does not run.
var errAway = fmt.Errorf("simulated: %w", &net.OpError{Op: "dial", Net: "tcp",
	Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

// isAway reports whether the API server does not run.
func (f *faults) isAway() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.awayUntil)
}

// leave says at which write the API server goes away, for how long, and how long it knows no roles then.
type leave struct {
	writes        int // that are carried out before it
	during, roles time.Duration
	left          chan struct{}
}

// Leave takes the API server away from a replica for a while, after a number of writes, at the next one, or after a
// second: its watches end, answers under way are lost, and no connection is made. When it is back, it refuses
// everything for some time, because it knows no roles.
func (e *Endpoint) Leave(writes int, during, roles time.Duration) {
	l := &leave{writes: writes, during: during, roles: roles, left: make(chan struct{})}
	e.faults.mu.Lock()
	e.faults.leave = l
	e.faults.mu.Unlock()
	go func() {
		select {
		case <-l.left:
		case <-time.After(leaveTime):
			e.faults.mu.Lock()
			e.faults.begin(l)
			e.faults.mu.Unlock()
		}
		for resource := range e.views {
			e.Break(resource, false)
		}
	}()
}

// begin begins an outage, unless it has begun.
func (f *faults) begin(l *leave) {
	if f.leave != l {
		return
	}
	f.leave, f.awayUntil = nil, later(f.awayUntil, time.Now().Add(l.during))
	f.current = append(f.current, Fault{Outcome: Denied, Verbs: everyVerb, Until: f.awayUntil.Add(l.roles)})
	close(l.left)
}

// restartServer stops the API server for a while: On is after how many writes. When it is back, it refuses everything
// for a moment if How says so, because it knows no roles yet.
func restartServer(_ context.Context, w *world, s Step) {
	roles := time.Duration(0)
	if s.How == "roles" {
		roles = rolesTime
	}
	away := leaveTime + s.For + roles
	w.disturb(away+reconnectTime, settleTime)
	w.guard.excuse(away+reconnectTime, away)
	writes, _ := strconv.Atoi(s.On) // 0 if it is no number
	for _, e := range w.endpoints() {
		e.Leave(writes, s.For, roles)
	}
}

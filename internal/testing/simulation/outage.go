package simulation

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// rolesTime is how long after its start the API server may know no roles yet.
	rolesTime = time.Second
	// leaveTime is how long is waited for the write at which it stops.
	leaveTime = time.Second
	// reportTime is how long a permission may be missing until that is reported.
	reportTime = 20 * time.Second
	// leaseTime is how long a replica waits at most for the Lease of one that could not give it back.
	leaseTime = 2*time.Minute + 30*time.Second
)

// errAway is the error of a client whose API server does not run.
var errAway = fmt.Errorf("simulated: %w", &net.OpError{Op: "dial", Net: "tcp",
	Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

// outage says when the API server runs.
type outage struct {
	mu sync.Mutex
	// next begins after this many writes. It is nil if none is to come.
	next   *leave
	writes int
	// awayUntil is until when the API server does not run, and deniesUntil until when it refuses everything, because it
	// knows no roles.
	awayUntil, deniesUntil time.Time
}

// leave is an outage to come.
type leave struct {
	during, denies time.Duration
	begun          chan struct{}
}

// begin begins an outage, unless it has begun. o.mu must be held.
func (o *outage) begin(l *leave) {
	if o.next != l {
		return
	}
	o.next, o.awayUntil = nil, later(o.awayUntil, time.Now().Add(l.during))
	o.deniesUntil = o.awayUntil.Add(l.denies)
	close(l.begun)
}

// end ends the outage, and prevents the next one.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next, o.awayUntil, o.deniesUntil = nil, time.Time{}, time.Time{}
}

// strikes returns the fault that an outage causes for a request, which may be the write at which it begins.
func (o *outage) strikes(r *request) (Outcome, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next != nil && r.isWrite() && r.table.name != "leases" && r.table.name != "events" {
		if o.writes--; o.writes < 0 {
			o.begin(o.next)
		}
	}
	switch now := time.Now(); {
	case now.Before(o.awayUntil):
		return Away, true
	case now.Before(o.deniesUntil):
		return Denied, true
	}
	return "", false
}

// isAway reports whether the API server does not run.
func (o *outage) isAway() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.awayUntil)
}

// Leave stops the API server for a while, after a number of writes of replicas, at the next one, or after a second:
// watches end, answers under way are lost, and no connection is made. When it is back, it refuses everything for some
// time, because it knows no roles.
func (s *APIServer) Leave(writes int, during, denies time.Duration) {
	l := &leave{during: during, denies: denies, begun: make(chan struct{})}
	s.outage.mu.Lock()
	s.outage.next, s.outage.writes = l, writes
	s.outage.mu.Unlock()
	go func() {
		select {
		case <-l.begun:
		case <-time.After(leaveTime):
			s.outage.mu.Lock()
			s.outage.begin(l)
			s.outage.mu.Unlock()
		}
		s.mu.Lock()
		endpoints := s.endpoints
		s.mu.Unlock()
		for _, e := range endpoints {
			for resource := range e.views {
				e.Break(resource, false)
			}
		}
	}()
}

// restartServer stops the API server for a while: On is after how many writes. When it is back, it refuses everything
// for a moment if How says so, because it knows no roles yet.
func restartServer(_ context.Context, w *world, s Step) {
	denies, settled := time.Duration(0), settleTime
	if s.How == "roles" {
		denies = rolesTime
	}
	if w.history.Replicas > 1 {
		settled += leaseTime
	}
	away := leaveTime + s.For + denies
	w.disturb(away, settled)
	w.guard.excuse(away, away)
	if denies > 0 {
		w.guard.deny(s.For, leaveTime+denies)
	}
	writes, _ := strconv.Atoi(s.On) // 0 if it is no number
	w.server.Leave(writes, s.For, denies)
}

// checkReported checks that the status of a LocalService does not say any more that Services are being written, when a
// permission has been missing for longer than after a restart of the API server.
// Of what was refused before, the next try comes later.
func checkReported(w *world, s Step) error {
	w.server.mu.Lock()
	found := problems(w.server)
	w.server.mu.Unlock()
	if time.Since(w.guard.deniedSince) < reportTime || time.Now().After(w.guard.deniedUntil) {
		return nil
	}
	for _, ls := range List[*v1alpha1.LocalService](w.server) {
		isMissing := func(p problem) bool {
			return p.namespace == ls.Namespace && p.kind == missing &&
				strings.Contains(p.what, "LocalService "+ls.Name+" ")
		}
		ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
		isSaid := ready != nil && ready.Status == metav1.ConditionFalse &&
			ready.Reason != v1alpha1.ReasonWritingServices
		if keyOf(ls).String() == s.On && slices.ContainsFunc(found, isMissing) && !isSaid {
			w.guard.fail("a missing permission is not reported", "%s: %v", keyOf(ls), ready)
		}
	}
	return nil
}

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
	mu   sync.Mutex
	next *leave // nil if none is to come
	// awayUntil is until when the API server does not run, and deniesUntil until when it refuses everything, because it
	// knows no roles.
	awayUntil, deniesUntil time.Time
}

// leave is an outage to come: after a number of writes of replicas, at the next one.
type leave struct {
	writes         int
	during, denies time.Duration
}

// leave stops the API server, unless it has been stopped so already: no connection is made, answers under way are lost,
// and watches end. The lock of the outage must be held.
func (s *APIServer) leave(l *leave) {
	if s.outage.next != l {
		return
	}
	s.outage.next, s.outage.awayUntil = nil, later(s.outage.awayUntil, time.Now().Add(l.during))
	s.outage.deniesUntil = s.outage.awayUntil.Add(l.denies)
	s.mu.Lock()
	endpoints := s.endpoints
	s.mu.Unlock()
	for _, e := range endpoints {
		e.breakAll()
	}
}

// end ends the outage, and prevents the next one.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next, o.awayUntil, o.deniesUntil = nil, time.Time{}, time.Time{}
}

// strikes returns the fault that an outage causes for a request, which may be the write at which it begins.
func (s *APIServer) strikes(r *request) (Outcome, bool) {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.next; l != nil && r.isWork() {
		if l.writes--; l.writes < 0 {
			s.leave(l)
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

// restartServer stops the API server for a while: at a write, of which On says how many come before it, or after a
// second. When it is back, it refuses everything for a moment if How says so, because it knows no roles yet.
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
	l, o := &leave{writes: writes, during: s.For, denies: denies}, &w.server.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = l
	time.AfterFunc(leaveTime, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		w.server.leave(l)
	})
}

// checkReported checks that the status of a LocalService does not say any more that Services are being written, when a
// permission has been missing for longer than after a restart of the API server. Of what was refused before, the next
// try comes later.
func checkReported(w *world, s Step) error {
	key := metaOf(s.On)
	ls := Get[*v1alpha1.LocalService](w.server, key.Namespace, key.Name)
	if ls == nil || time.Since(w.guard.deniedSince) < reportTime || time.Now().After(w.guard.deniedUntil) {
		return nil
	}
	w.server.mu.Lock()
	isMissing := slices.ContainsFunc(problems(w.server), func(p problem) bool {
		return p.namespace == ls.Namespace && p.kind == missing && strings.Contains(p.what, "LocalService "+ls.Name+" ")
	})
	w.server.mu.Unlock()
	ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
	if isMissing && (ready == nil || ready.Status != metav1.ConditionFalse ||
		ready.Reason == v1alpha1.ReasonWritingServices) {
		w.guard.fail("a missing permission is not reported", "%s: %v", s.On, ready)
	}
	return nil
}

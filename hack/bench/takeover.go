package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// measureTakeover measures row 8: the leader ends while a node is added, for which the standby then has to care.
func measureTakeover(ctx context.Context, b *bench) {
	lease := 15 * time.Second // the controller's default
	if b.opts.smoke {
		lease = 10 * time.Second // On a busy machine a shorter one may expire.
	}
	ends := []struct {
		what   string
		signal syscall.Signal
		rounds int
		limit  time.Duration
	}{
		{"leader stopped (SIGTERM): work resumes", syscall.SIGTERM, 5, 2 * time.Second},
		{fmt.Sprintf("leader killed (SIGKILL), lease of %v: work resumes", lease), syscall.SIGKILL, 2, lease},
	}
	b.withScene(ctx, 10, func(s *scene) {
		s.createLocalServices(ctx, "app", 1)
		for _, end := range ends {
			var delays samples
			for range b.rounds(end.rounds) {
				delays = append(delays, s.takeOver(ctx, lease, end.signal).Seconds())
			}
			b.report.add(8, delays.longest(end.what).atMost(end.limit.Seconds()))
		}
	})
}

// takeOver is how long after a signal to the leader the standby has created the Service of a node added meanwhile.
func (s *scene) takeOver(ctx context.Context, lease time.Duration, signal syscall.Signal) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, framework.DefaultTimeout)
	defer cancel()
	args := []string{
		"-leader-elect", "-leader-election-namespace=" + framework.ControllerNamespace,
		"-leader-election-lease-duration=" + lease.String(),
	}
	leader := s.startController(args...)
	defer leader.Kill()
	try(leader.WaitLog(ctx, "Leading"))
	standby := s.startController(args...)
	defer func() { s.note(standby.Stop()) }()
	try(standby.WaitLog(ctx, "Standing by"))
	s.awaitRest(ctx, restTime)
	mark, ended := s.Audit.Mark(), time.Now()
	must(leader.Signal(signal))
	try(leader.Wait())
	s.addNode(ctx)
	created := try(s.await(ctx, mark, 1, createdServices))
	progress("row 8: %v of the leader: work resumes after %v", signal, created.Last().Sub(ended))
	return created.Last().Sub(ended)
}

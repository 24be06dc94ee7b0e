package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	leaseDuration     = 15 * time.Second // the controller's default
	shortestLease     = 2 * time.Second  // that the controller accepts, for smoke runs
	killRounds        = 2
	terminateRounds   = 5
	takeoverTimeout   = time.Minute
	takeoverNodes     = 10
	terminatedAtLeast = 2 * time.Second
)

// measureTakeover measures row 8: the leader ends while a node is added, for which the standby then has to care.
func (b *bench) measureTakeover(ctx context.Context) error {
	lease := leaseDuration
	if b.opts.smoke {
		lease = shortestLease
	}
	return b.withCluster(ctx, func(c *cluster) error {
		s, err := b.newScene(ctx, c, takeoverNodes)
		if err != nil {
			return err
		}
		if _, err := s.createLocalServices(ctx, s.namedLocalServices("app", 1)); err != nil {
			return err
		}
		ends := []struct {
			what   string
			signal syscall.Signal
			rounds int
			limit  time.Duration
		}{
			{"leader stopped (SIGTERM): work resumes", syscall.SIGTERM, terminateRounds, terminatedAtLeast},
			{fmt.Sprintf("leader killed (SIGKILL), lease of %v: work resumes", lease), syscall.SIGKILL, killRounds, lease},
		}
		for _, end := range ends {
			var delays []float64
			for range b.rounds(end.rounds) {
				delay, err := b.takeOver(ctx, s, lease, end.signal)
				if err != nil {
					return err
				}
				progress("row 8: %s after %v", end.what, delay)
				delays = append(delays, delay.Seconds())
			}
			b.report.add(check{Row: 8, What: end.what, Unit: "s", Ours: quantile(delays, 1), Limit: end.limit.Seconds(), Of: ofOurs,
				Note: fmt.Sprintf("longest of %d, shortest %.2f s", len(delays), quantile(delays, 0))})
		}
		return nil
	})
}

// takeOver ends a leader, and returns how long after that the standby has created a Service.
func (b *bench) takeOver(ctx context.Context, s *scene, lease time.Duration, signal syscall.Signal) (delay time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	args := []string{"-leader-elect", "-leader-election-namespace=kube-system", "-leader-election-lease-duration=" + lease.String()}
	leader, err := b.startController(ctx, s.cluster, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, leader.stop()) }()
	if err := leader.waitLog(ctx, "Leading"); err != nil {
		return 0, err
	}
	standby, err := b.startController(ctx, s.cluster, args...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, standby.stop()) }()
	if err := standby.waitLog(ctx, "Standing by"); err != nil {
		return 0, err
	}
	if err := s.audit.waitQuiet(ctx, conclusionTime); err != nil {
		return 0, err
	}
	mark, err := s.audit.mark()
	if err != nil {
		return 0, err
	}
	ended := time.Now()
	if err := leader.cmd.Process.Signal(signal); err != nil {
		return 0, fmt.Errorf("end the leader: %w", err)
	}
	<-leader.exited
	if _, err := s.addNode(ctx); err != nil {
		return 0, err
	}
	created, err := s.audit.waitFor(standby.ctx, mark, 1, "Services of a node added without a leader", all(byUs, verb("create", "services"), done))
	if err != nil {
		return 0, err
	}
	return created.last().Sub(ended), nil
}

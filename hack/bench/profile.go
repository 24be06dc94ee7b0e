package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// profileTime is how much of a piece of work, from its beginning, a CPU profile covers.
const profileTime = 10 * time.Second

func (b *bench) profilingArgs() []string {
	if b.opts.profile {
		return []string{"-profiling"}
	}
	return nil
}

// profiled does a piece of work, and if profiles are wanted saves those of the controller: the CPU during the work, and
// the heap after it. Profiles distort the measurement a little.
func (b *bench) profiled(ctx context.Context, p *controller, name string, work func() error) error {
	if !b.opts.profile {
		return work()
	}
	saved := make(chan error, 1)
	go func() {
		saved <- b.saveProfile(ctx, p, fmt.Sprintf("profile?seconds=%d", int(b.shorter(profileTime).Seconds())+1), name+".cpu.pprof")
	}()
	err := work()
	return errors.Join(err, <-saved, b.saveProfile(ctx, p, "heap?gc=1", name+".heap.pprof"))
}

func (b *bench) saveProfile(ctx context.Context, p *controller, query, file string) error {
	data, err := p.get(ctx, "/debug/pprof/"+query)
	if err != nil {
		return fmt.Errorf("get a profile of the controller: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.opts.out, file), data, 0o644); err != nil {
		return fmt.Errorf("save a profile: %w", err)
	}
	return nil
}

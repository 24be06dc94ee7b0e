package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// parallel calls do for every i below n, from so many workers. After an error, no more are begun.
func parallel(ctx context.Context, workers, n int, do func(ctx context.Context, worker, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for worker := range min(workers, n) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, worker, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return ctx.Err()
}

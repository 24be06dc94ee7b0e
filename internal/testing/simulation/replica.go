package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// start starts another replica.
func (w *world) start(ctx context.Context) {
	w.started++
	r := &replica{name: fmt.Sprint("replica", w.started), seed: w.history.Seed, done: make(chan struct{})}
	r.endpoint = w.server.NewEndpoint(r.name, w.history.Seed)
	ctx, r.stop = context.WithCancel(ctx)
	w.replicas = append(w.replicas, r)
	w.story.add("%s starts", r.name)
	go func() {
		defer close(r.done)
		w.program(ctx, Replica{Config: r.endpoint.Config(), Elect: w.history.Replicas > 1,
			Log:     func(line string) { w.logged(r, line) },
			Shuffle: r.shuffle,
			Record: func(object, eventType, reason, note string) {
				w.story.add("  %s: %s event %s of %s: %s", r.name, eventType, reason, object, note)
				w.guard.event(r.name, reason, note)
			}})
	}()
}

// shuffle depends on the time alone: what happens at one moment happens in no certain order, and must not affect what
// comes later.
func (r *replica) shuffle(n int, swap func(i, j int)) {
	rand.New(rand.NewPCG(r.seed, uint64(time.Now().UnixNano()))).Shuffle(n, swap)
}

func (w *world) logged(r *replica, line string) {
	w.story.add("%s logs: %s", r.name, line)
	if strings.Contains(line, "panic: ") {
		w.guard.fail("a panic", "%s", line)
	}
}

func (r *replica) end() {
	r.stop()
	<-r.done
}

// revive starts another replica for each that has ended by itself, as one does that has lost its Lease.
func (w *world) revive(ctx context.Context) {
	for _, r := range slices.Clone(w.replicas) {
		select {
		case <-r.done:
			w.replace(ctx, r, "has ended")
		default:
		}
	}
}

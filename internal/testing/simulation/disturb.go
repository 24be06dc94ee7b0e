package simulation

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// faultActions lists what can go wrong between a replica and the API server, by the Do of a step. On is what is
// concerned.
var faultActions = map[string]func(ctx context.Context, w *world, s Step){
	"stall":          func(_ context.Context, w *world, s Step) { w.stall(s, w.endpoints()...) },
	"lag":            lag,
	"break":          func(_ context.Context, w *world, s Step) { w.breakWatches(s, false) },
	"compact":        func(_ context.Context, w *world, s Step) { w.breakWatches(s, true) },
	"fail":           fail,
	"pause":          pause,
	"crash":          crashReplica,
	"restart":        restart,
	"restart-server": restartServer,
	"slow-admission": slowDown,
}

func (w *world) endpoints() []*Endpoint {
	var out []*Endpoint
	for _, r := range w.replicas {
		out = append(out, r.endpoint)
	}
	return out
}

func (w *world) stall(s Step, endpoints ...*Endpoint) {
	w.delay(s.For)
	w.guard.excuse(s.For, 0)
	for _, e := range endpoints {
		for resource := range e.views {
			if s.On == "" || s.On == resource {
				e.Stall(resource, s.For)
			}
		}
	}
}

func lag(_ context.Context, w *world, s Step) {
	w.delay(untilEnded)
	w.guard.excuse(untilEnded, 0)
	for _, e := range w.endpoints() {
		e.Lag(s.On, s.For)
	}
}

func (w *world) breakWatches(s Step, compact bool) {
	w.disturb(time.Minute, settleTime) // Reflectors back off.
	w.guard.excuse(time.Minute, 0)
	for _, e := range w.endpoints() {
		e.Break(s.On, compact)
	}
}

// fail makes requests fail: On is verb,resource,name.
func fail(_ context.Context, w *world, s Step) {
	w.disturb(s.For, retryTime)
	parts := append(strings.Split(s.On, ","), "", "")
	f := Fault{Outcome: Outcome(s.How), Verb: parts[0], Resource: parts[1], Name: parts[2],
		Until: time.Now().Add(s.For)}
	switch f.Outcome {
	case Denied:
		w.guard.deny(0, s.For)
	case Hang, Late, Lost:
		w.guard.excuse(s.For+time.Minute, s.For+time.Minute)
	case Busy: // The client repeats the write by itself.
		w.guard.excuse(0, s.For)
	}
	for _, e := range w.endpoints() {
		e.Fail(f)
	}
}

// pause pauses the first replica: its requests, including those for its Lease, arrive when the pause is over, and so do
// its watch events. In a pause of two minutes it loses its Lease.
func pause(_ context.Context, w *world, s Step) {
	w.disturb(s.For, retryTime)
	w.guard.excuse(s.For+time.Minute, s.For+time.Minute)
	e := w.replicas[0].endpoint
	w.stall(Step{For: s.For}, e)
	e.Fail(Fault{Outcome: Paused, Until: time.Now().Add(s.For)})
}

// crashReplica makes the first replica crash at a write, and starts another one in its place.
func crashReplica(ctx context.Context, w *world, s Step) {
	w.disturb(0, retryTime)
	w.guard.excuse(time.Minute, 0)
	writes, when, _ := strings.Cut(s.How, ",")
	r := w.replicas[0]
	n, _ := strconv.Atoi(writes) // 0 if it is no number.
	crashed := r.endpoint.Crash(n, when == "after")
	select {
	case <-crashed:
	case <-time.After(s.For):
	}
	w.replace(ctx, r, "crashes")
}

// restart stops the first replica, as an upgrade does, and starts another one.
func restart(ctx context.Context, w *world, _ Step) {
	ending := time.Duration(0)
	if w.isSlow() {
		ending = patience // Writes under way are finished before the next replica starts.
	}
	w.disturb(ending, settleTime)
	r := w.replicas[0]
	w.story.add("%s is stopped", r.name)
	r.end()
	w.replicas = w.replicas[1:]
	w.start(ctx)
}

func (w *world) replace(ctx context.Context, r *replica, what string) {
	w.story.add("%s %s", r.name, what)
	r.endpoint.Kill()
	r.end()
	w.replicas = slices.DeleteFunc(w.replicas, func(other *replica) bool { return other == r })
	w.start(ctx)
}

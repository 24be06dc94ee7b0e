package main

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"time"

	"github.com/prometheus/procfs"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// Memory has settled when it has not changed by more than settleTolerance for settleTime, or after settleTimeout:
	// the Go runtime returns the memory that a start no longer needs within about a minute.
	settleTime      = 10 * time.Second
	settleTimeout   = 60 * time.Second
	settleTolerance = 0.01
)

// controller is a running process of the program that is measured.
type controller struct {
	*framework.Controller
	usage
	ready time.Duration // from the start of the process to full caches
}

// startController starts a process and returns at once. Whoever calls it stops or kills it.
func (s *scene) startController(args ...string) *controller {
	concurrency := fmt.Sprintf("-write-concurrency=%d", writeConcurrency)
	process := try(framework.StartController(framework.ControllerOptions{
		Args: append([]string{"-kubeconfig=" + try(s.ControllerKubeconfig(context.Background())),
			"-master=" + s.address, concurrency}, args...),
		Env: []string{"KUBE_CACHE_MUTATION_DETECTOR=false"}, // It would be what is measured.
	}))
	return &controller{Controller: process, usage: usageOf(process.Pid())}
}

// withController calls use with a controller that is ready, and stops it afterwards. The context that use gets is done
// when the controller ends.
func (s *scene) withController(ctx context.Context, use func(ctx context.Context, p *controller)) {
	started := time.Now()
	p := s.startController()
	defer func() { s.note(p.Stop()) }()
	ctx = whileRuns(ctx, p.Process)
	must(p.WaitReady(ctx))
	p.ready = time.Since(started)
	use(ctx, p)
}

// whileRuns is a context that is done when a process ends.
func whileRuns(ctx context.Context, p *framework.Process) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		<-p.Done()
		cancel(fmt.Errorf("%s has ended; its log ends with:\n%s", p.Name(), p.Tail(20)))
	}()
	return ctx
}

// usage reads what a running process uses from /proc.
type usage struct{ proc procfs.Proc }

func usageOf(pid int) usage { return usage{try(procfs.NewProc(pid))} }

// cpu is the CPU time that the process has used so far. Its clock has steps of 10 ms.
func (p usage) cpu() time.Duration {
	return time.Duration(try(p.proc.Stat()).CPUTime() * float64(time.Second))
}

// memory holds what the process has of the machine's memory, in MB: now, at most so far, and now of its program file,
// which the kernel can take back at any time.
type memory struct{ resident, peak, program float64 }

// own returns what is there now but for the program file. That of the playground is all of Kubernetes.
func (m memory) own() float64 { return m.resident - m.program }

func (m memory) String() string {
	return fmt.Sprintf("%.0f MB, %.0f MB of it the program file; peak %.0f MB", m.resident, m.program, m.peak)
}

func (p usage) memory() memory {
	status := try(p.proc.NewStatus())
	return memory{float64(status.VmRSS) / 1e6, float64(status.VmHWM) / 1e6, float64(status.RssFile) / 1e6}
}

// settledMemory waits until the memory of a process that rests does not change any more.
func (s *scene) settledMemory(ctx context.Context, p usage) memory {
	began := time.Now()
	settled, since := p.memory(), began
	for time.Since(since) < s.shorter(settleTime) && time.Since(began) < s.shorter(settleTimeout) {
		must(pause(ctx, time.Second/2))
		if m := p.memory(); math.Abs(m.resident-settled.resident) > settleTolerance*settled.resident {
			settled, since = m, time.Now()
		}
	}
	return p.memory()
}

// observed holds what the API server and /proc say about a piece of work.
type observed struct {
	requests framework.Requests
	cpu      time.Duration
	from, to time.Time
}

// count is how many requests of a kind there were.
func (o observed) count(picked pick) float64 { return float64(len(picked(o.requests))) }

// observe does a piece of work when the controller rests, and waits until it rests again. Work gets the position in the
// audit log at which it begins.
func (s *scene) observe(ctx context.Context, p *controller, work func(mark framework.Mark)) observed {
	s.awaitRest(ctx, restTime)
	mark, o, before := s.Audit.Mark(), observed{from: time.Now()}, p.cpu()
	work(mark)
	s.awaitRest(ctx, restTime)
	o.to, o.cpu = time.Now(), p.cpu()-before
	o.requests = s.Audit.Since(mark)
	return o
}

const (
	// auditPollInterval is how often the audit log is looked at while something is waited for.
	auditPollInterval = 25 * time.Millisecond
	// restTime is how long the controller rests before a piece of its work counts as done.
	restTime = 500 * time.Millisecond
)

// pick picks the requests that a measurement is about.
type pick func(framework.Requests) framework.Requests

func succeeded(p pick) pick {
	return func(rs framework.Requests) framework.Requests { return p(rs).Where(framework.Succeeded) }
}

// ours picks what the controller did to a resource with one of these verbs. Its dry runs of what the guard must refuse do
// nothing.
func ours(resource string, verbs ...string) pick {
	return func(rs framework.Requests) framework.Requests {
		return rs.ByController().Writes().Verb(verbs...).Resource(resource)
	}
}

var (
	serviceCreates  = ours("services", "create")
	otherWrites     = ours("services", "update", "patch", "delete", "deletecollection")
	statusWrites    = ours("localservices/status", "update", "patch")
	podPatches      = ours("pods", "patch")
	createdServices = succeeded(serviceCreates)
	deletedServices = succeeded(ours("services", "delete"))
	labelledPods    = succeeded(podPatches)
)

// work picks the requests of the controller but those that keep its Lease.
func work(rs framework.Requests) framework.Requests {
	return rs.ByController().Where(func(r *framework.Request) bool { return r.ObjectRef.Resource != "leases" })
}

// listed is how many lists the controller has asked for during a piece of work, with those that begin a watch. These
// are in the log, of which mark is a position before them, only when the watch has ended: stop the controller before.
// Lists of one object do not count: each watch that begins anew asks so for the revision that etcd has.
func (c *cluster) listed(mark framework.Mark, o observed) float64 {
	return float64(len(c.Audit.Since(mark).ByController().Where(o.listed)))
}

func (o observed) listed(r *framework.Request) bool {
	query := try(url.ParseRequestURI(r.RequestURI)).Query()
	isList := r.Verb == "list" && query.Get("limit") != "1"
	return (isList || r.Verb == "watch" && query.Get("sendInitialEvents") == "true") &&
		r.RequestReceivedTimestamp.After(o.from) && r.RequestReceivedTimestamp.Time.Before(o.to)
}

// span is from when the first of some requests was received until the last was answered.
func span(rs framework.Requests) time.Duration { return rs.Last().Sub(rs.First()) }

// await waits until the audit log has n of the picked requests after a mark, and returns them.
func (c *cluster) await(ctx context.Context, mark framework.Mark, n int, picked pick) (framework.Requests, error) {
	var found framework.Requests
	for {
		more := c.Audit.Since(mark)
		mark += framework.Mark(len(more))
		if found = append(found, picked(more)...); len(found) >= n {
			return found, nil
		}
		if err := pause(ctx, auditPollInterval); err != nil {
			return found, fmt.Errorf("wait for %d requests, of which there were %d: %w", n, len(found), err)
		}
	}
}

// awaitRest waits until the controller has sent no request for a while.
func (c *cluster) awaitRest(ctx context.Context, quiet time.Duration) {
	mark := c.Audit.Mark()
	for busy := time.Now(); time.Since(busy) < quiet; {
		must(pause(ctx, auditPollInterval))
		more := c.Audit.Since(mark)
		mark += framework.Mark(len(more))
		if len(work(more)) > 0 {
			busy = time.Now()
		}
	}
}

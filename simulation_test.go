package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
)

// simulated has the options of replicas. A process can make them only once. So few workers and writes at a time that
// one namespace could occupy them all.
var simulated = sync.OnceValue(func() *app.Options {
	opts, err := app.NewOptions([]string{"-leader-election-namespace=kube-system",
		"-leader-election-lease-duration=120s", "-workers=2", "-write-concurrency=3"}, io.Discard, os.Stderr)
	if err != nil {
		panic(err)
	}
	return opts
})

// recorder sends events to a history. The recorder of client-go holds a lock while it waits, which blocks a bubble for
// ever.
type recorder struct {
	record func(object, eventType, reason, note string)
}

func (r recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	object := ""
	if ref, isRef := regarding.(*corev1.ObjectReference); isRef {
		object = ref.Namespace + "/" + ref.Name
	} else if o, err := meta.Accessor(regarding); err == nil {
		object = o.GetNamespace() + "/" + o.GetName()
	}
	r.record(object, eventType, reason, fmt.Sprintf(note, args...))
}

// quietClock has no ticker that ticks twice a second or more often. Only a metric of each queue uses one, and at rest
// it would cause most of the work.
type quietClock struct{ clock.RealClock }

func (c quietClock) NewTicker(d time.Duration) clock.Ticker {
	if d < time.Second {
		d = 24 * time.Hour
	}
	return c.RealClock.NewTicker(d)
}

// replicate runs a replica as app.Run does, except for what depends on this machine.
func replicate(ctx context.Context, r simulation.Replica) {
	ctx = klog.NewContext(ctx, funcr.New(func(_, line string) { r.Log(line) }, funcr.Options{}))
	deps, err := app.NewDependencies(r.Config, simulated(), func(context.Context, string, error) {}, func(err error) { panic(err) })
	if err != nil {
		panic(err)
	}
	deps.Shuffle, deps.Clock, deps.Record = r.Shuffle, quietClock{}, app.RecordTo(recorder{r.Record})
	c := newControllers(deps)
	cachesCtx, stopCaches := context.WithCancel(context.WithoutCancel(ctx))
	waitForCaches := deps.Caches.Start(cachesCtx)
	defer waitForCaches()
	defer stopCaches()
	// Queues have goroutines that only Run ends. A process that has never led ends without Run.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	defer c.run(ended)
	switch {
	case !deps.Caches.WaitForSync(ctx):
	case r.Elect:
		_ = app.Lead(ctx, deps.Kube.CoordinationV1(), simulated(), leaderelection.NewLeaderHealthzAdaptor(0), c.run)
	default:
		c.run(ctx)
	}
}

// play plays a history in a bubble of its own.
func play(t *testing.T, h *simulation.History) (failure *simulation.Failure) {
	synctest.Test(t, func(t *testing.T) { failure = simulation.Play(t.Context(), h, replicate) })
	return failure
}

const (
	// few histories are played if no time is given: with the race detector each takes a second.
	few = 5
	// tries is how many histories are played to find a short failing one.
	tries = 400
)

// TestSimulation plays random histories: a few, or as many as fit into the time $SIMULATE. $SEED is the seed of the
// first one. A failure prints its own.
func TestSimulation(t *testing.T) {
	quiet(t)
	began, seed, played := time.Now(), int(time.Now().UnixNano()), 0
	if given, err := strconv.Atoi(os.Getenv("SEED")); err == nil {
		seed = given
	}
	span, _ := time.ParseDuration(os.Getenv("SIMULATE")) // 0 for a few
	defer func() { t.Logf("%d histories in %s", played, time.Since(began)) }()
	for ; span == 0 && played < few || time.Since(began) < span; seed += 1 << 20 {
		h := simulation.Random(seed)
		played++
		if failure := play(t, h); failure != nil {
			// Simultaneous actions have no fixed order, so the failure may not recur.
			h, failure = simulation.Shrink(h, failure, tries, func(h *simulation.History) *simulation.Failure {
				return play(t, h)
			})
			t.Fatalf("the history of SEED=%d fails, shortened:\n%s%s", seed, h, failure)
		}
	}
}

// quiet keeps logs without a context out of the test's output.
func quiet(t *testing.T) {
	simulated()
	klog.StopFlushDaemon() // The daemon reads the logger without a lock.
	klog.SetLogger(logr.Discard())
	t.Cleanup(klog.ClearLogger)
}

// TestKeptHistories plays the histories in internal/testing/simulation/testdata: each has found a defect, or shows what
// the documents promise.
func TestKeptHistories(t *testing.T) {
	quiet(t)
	files, err := filepath.Glob("internal/testing/simulation/testdata/histories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h, err := simulation.Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if failure := play(t, h); failure != nil {
				t.Error(failure)
			}
		})
	}
}

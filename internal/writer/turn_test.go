package writer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// always never stops a batch.
func always() bool { return true }

// parallel is a client that creates Services at the same time, which the fake clientset does not.
type parallel struct {
	kubernetes.Interface
	core stubCore
}

type stubCore struct {
	typedcorev1.CoreV1Interface
	services stubServices
}

type stubServices struct {
	typedcorev1.ServiceInterface
	create func(i int) error
}

func (p parallel) CoreV1() typedcorev1.CoreV1Interface          { return p.core }
func (c stubCore) Services(string) typedcorev1.ServiceInterface { return c.services }
func (s stubServices) Create(_ context.Context, service *corev1.Service, _ metav1.CreateOptions) (*corev1.Service, error) {
	i := 0
	if _, err := fmt.Sscanf(service.Name, "demo-n%d", &i); err != nil {
		return nil, err
	}
	return service, s.create(i)
}

// create makes the changes of a turn that creates n Services. It returns how many were made, and how many failed.
func (f *fixture) create(n int, create func(i int) error) (made, failed int) {
	shared := *f.deps.Shared
	shared.Kube = parallel{core: stubCore{services: stubServices{create: create}}}
	w := *f.deps
	w.Shared = &shared
	out := w.WriteServices(f.t.Context(), f.ls, planOf(f.changes(plan.Create, nodeNames("n", n)...)), never)
	return len(out.Made[plan.Create]), len(out.Refused)
}

func never() bool { return false }

// checkTokens checks that all tokens were returned.
func checkTokens(t *testing.T, p *Pool) {
	t.Helper()
	if !p.tokens.TryAcquire(int64(p.size)) {
		t.Error("not all tokens were returned")
		return
	}
	p.tokens.Release(int64(p.size))
}

// TestBatchBegins: a slow start makes one write alone. Once it has succeeded, or without a slow start, there are as many
// as the concurrency at a time. Each write is made once.
func TestBatchBegins(t *testing.T) {
	const n, concurrency = 100, 4
	for isSlow, want := range map[bool]time.Duration{true: 2600 * time.Millisecond, false: 2500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, concurrency)
			if !isSlow {
				f.ls.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
					Reason: v1alpha1.ReasonWritingServices, ObservedGeneration: f.ls.Generation}}
			}
			var running, most atomic.Int64
			var done [n]atomic.Int64
			began := time.Now()
			made, failed := f.create(n, func(i int) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(100 * time.Millisecond)
				done[i].Add(1)
				return nil
			})
			if took := time.Since(began); took != want || most.Load() != concurrency {
				t.Errorf("it took %s, with %d at a time; want %s", took, most.Load(), want)
			}
			for i := range done {
				if got := done[i].Load(); got != 1 {
					t.Errorf("write %d was made %d times", i, got)
				}
			}
			if made != n || failed > 0 {
				t.Errorf("%d made, %d failed", made, failed)
			}
			checkTokens(t, f.deps.Pool)
		})
	}
}

// TestBatchWhileOthersHang: while writes that hang hold all the tokens, each other batch has one write at a time, and no
// batch stops.
func TestBatchWhileOthersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const concurrency = 4
		f, release := newFixture(t, concurrency), make(chan struct{})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				f.create(100, func(i int) error {
					if i > concurrency {
						<-release
					}
					return nil
				})
			})
		}
		synctest.Wait()
		if f.deps.Pool.tokens.TryAcquire(1) {
			t.Fatal("not all tokens are taken")
		}
		began := time.Now()
		var running atomic.Int64
		made, failed := f.create(10, func(int) error {
			if running.Add(1) > 1 {
				t.Error("two writes at a time")
			}
			defer running.Add(-1)
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		if took := time.Since(began); took != time.Second || made != 10 || failed > 0 {
			t.Errorf("ten writes took %s: %d made, %d failed", took, made, failed)
		}
		close(release)
		all.Wait()
		checkTokens(t, f.deps.Pool)
	})
}

// TestBatchIsRefusedSlowly: until something succeeds, there is one write at a time. If a batch at full concurrency is
// refused, few more writes are started.
func TestBatchIsRefusedSlowly(t *testing.T) {
	const concurrency = 8
	for from, most := range map[int]int{0: maxFailures, 50: maxFailures + 2*(concurrency-1)} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, concurrency)
			var running atomic.Int64
			_, failed := f.create(100, func(i int) error {
				defer running.Add(-1)
				if n := running.Add(1); from == 0 && n > 1 {
					t.Errorf("%d writes at a time", n)
				}
				if time.Sleep(10 * time.Millisecond); i >= from {
					return forbidden
				}
				return nil
			})
			if failed < maxFailures || failed > most {
				t.Errorf("refused from %d on: %d failed, want at most %d", from, failed, most)
			}
			checkTokens(t, f.deps.Pool)
		})
	}
}

// TestBatchPanics: a panic over the outcome of a write, from which the worker loop recovers, keeps no token.
func TestBatchPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 4)
		b := &batch{turn: &turn{Writer: f.deps, ls: f.ls, checkWanted: func() error { return nil }}, action: plan.Create}
		changes := f.changes(plan.Create, nodeNames("n", 10)...)
		for i := range changes {
			b.changes = append(b.changes, &changes[i])
		}
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
			synctest.Wait()
			checkTokens(t, f.deps.Pool)
		}()
		b.run(t.Context()) // There is no map for what was made.
	})
}

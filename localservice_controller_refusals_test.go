package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"
)

// TestAnswersThatDiffer: an API server that is busy, and says so in other words each time, is not asked at full speed,
// although each answer changes the status.
func TestAnswersThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(testNodes(30), testLocalService())...)
		var asked atomic.Int64
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			id := strings.Map(func(digit rune) rune { return digit + 'a' - '0' }, fmt.Sprint(asked.Add(1)))
			return true, nil, apierrors.NewTooManyRequests("request "+id, 0)
		})
		f.runLocalServices()
		time.Sleep(time.Minute)
		atFirst := asked.Load()
		time.Sleep(10 * time.Minute)
		got := asked.Load() - atFirst
		if atFirst > 200 || got < 30 || got > 100 { // ten each time, in the end every two minutes
			t.Errorf("%d requests in the first minute, then %d in ten", atFirst, got)
		}
	})
}

// TestRefusalsDoNotSpin: if a quota has room for only some Services, few writes are tried, however much happens to them
// meanwhile, and the refusal is reported once.
func TestRefusalsDoNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, nodes = 5, 40
		f := newFixture(t, append(testNodes(nodes), testLocalService())...)
		f.deps.Options.WriteConcurrency = 1
		var refused, requests atomic.Int64
		var lifted atomic.Bool
		count := func(a core.Action) (bool, runtime.Object, error) {
			if refused.Load() > 0 && a.GetVerb() != "list" {
				requests.Add(1)
			}
			return false, nil, nil
		}
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			if lifted.Load() || len(f.services()) < quota {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "x",
				fmt.Errorf("exceeded quota: quota, requested: 1, used: %d", refused.Add(1)))
		})
		f.kube.PrependReactor("*", "*", count)
		f.client.PrependReactor("*", "*", count)
		f.runLocalServices()
		for i := range 570 { // the rest of the minute, after 3 s to settle
			time.Sleep(100 * time.Millisecond)
			for name, service := range f.services() {
				service.Annotations["beat"] = fmt.Sprint(i)
				f.set(service)
				f.set(testSlice(name, i%2 == 0))
				break
			}
		}
		t.Logf("%d requests in the first minute, %d refused", requests.Load(), refused.Load())
		events := strings.Join(f.recorded(), "\n")
		warnings := strings.Count(events, "Warning WriteFailed")
		// The others report the ready nodes, once a second, and read the LocalService before each ten refusals.
		if requests.Load() > refused.Load()+60+7 || refused.Load() < 6 || refused.Load() > 60 || warnings != 1 {
			t.Errorf("%d requests, %d refused, and %d warnings", requests.Load(), refused.Load(), warnings)
			t.Log(events)
		}
		lifted.Store(true)
		time.Sleep(4 * time.Minute)
		if got := len(f.services()); got != nodes {
			t.Errorf("%d Services after the quota was removed", got)
		}
	})
}

// TestQuotaRaised: each Service that a quota has room for is in an event, however little room there is at a time.
func TestQuotaRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(testNodes(100), testLocalService())...)
		var room atomic.Int64
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			return room.Add(-1) < 0, nil,
				apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("exceeded quota: quota"))
		})
		f.runLocalServices()
		told := 0
		for _, more := range []int64{0, 30, 1, 1, 20} {
			room.Store(more)
			time.Sleep(5 * time.Minute)
			for _, event := range f.recorded() {
				if _, made, isMade := strings.Cut(event, "created "); isMade {
					var n int
					_, _ = fmt.Sscanf(made, "%d", &n)
					told += n
				}
			}
			if got := len(f.services()); told != got || got == 0 && more > 0 {
				t.Errorf("room for %d more: %d Services, and events of %d", more, got, told)
			}
		}
	})
}

// TestMostRefused: the Services that a policy accepts, by their names, are created within minutes, however many others
// it refuses. Once all have been tried, nothing else is reported.
func TestMostRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, accepted = 300, 30
		f := newFixture(t, append(testNodes(nodes), testLocalService())...)
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			name := a.(core.CreateAction).GetObject().(*corev1.Service).Name
			cause := "a policy says no"
			if strings.HasSuffix(name, "1") {
				cause = "another one, too"
			}
			// A plan has the accepted ones last.
			return name < "demo-node7", nil, apierrors.NewForbidden(corev1.Resource("services"), name,
				errors.New(cause))
		})
		f.runLocalServices()
		time.Sleep(15 * time.Minute)
		if got := len(f.services()); got != accepted {
			t.Errorf("%d Services after 15 minutes, want %d", got, accepted)
		}
		f.set(testNode("other"))
		settle()
		if f.services()["demo-other"] == nil {
			t.Error("the Service of a node that joins has to wait for those that are refused")
		}
		time.Sleep(20 * time.Minute)
		f.writes()
		f.recorded()
		time.Sleep(time.Hour)
		if writes := strings.Join(f.writes(), "\n"); strings.Contains(writes, "localservices/status") {
			t.Error("the status keeps changing")
		}
		f.expect("events", nil, f.recorded())
	})
}

// TestTerminatingNamespace: while the namespace is being deleted, few writes are tried, and nothing is reported.
func TestTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("a", "disk=ssd"), testNode("b"), testLocalService(onSSD))
		terminating := apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("terminating"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		var acceptsOne atomic.Bool
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			return !acceptsOne.CompareAndSwap(true, false), nil, terminating
		})
		f.runLocalServices()
		f.expect("writes", []string{"create services demo-a"}, f.writes())
		f.remove(testNode("b"))
		settle()
		f.expect("writes when another node is gone", nil, f.writes())
		acceptsOne.Store(true)
		f.set(testNode("c", "disk=ssd"))
		settle()
		isOther := func(write string) bool { return !strings.HasPrefix(write, "create services ") }
		if writes := f.writes(); len(writes) < 2 || len(writes) > 3 || slices.ContainsFunc(writes, isOther) {
			t.Errorf("writes for another node: %v, want creations, and no status", writes)
		}
		f.expect("events", nil, f.recorded())
	})
}

// refuseUntil makes the API server refuse writes of a resource until the test allows them.
func refuseUntil(f *fixture, verb, resource string) *atomic.Bool {
	var over atomic.Bool
	f.kube.PrependReactor(verb, resource, func(a core.Action) (bool, runtime.Object, error) {
		return !over.Load(), nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("quota"))
	})
	return &over
}

// TestProgressEndsBackoff: an API server that is sometimes busy during a long fan-out is not reported, and does not
// make it wait for minutes when it is busy altogether for a moment.
func TestProgressEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 900
		f := newFixture(t, append(testNodes(nodes), testLocalService())...)
		f.deps.Options.WriteConcurrency = 1
		began := time.Now()
		var requests atomic.Int64
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			time.Sleep(20 * time.Millisecond)
			sometimes, always, over := requests.Add(1)%20 == 0, time.Since(began) > 10*time.Second,
				time.Since(began) > 13*time.Second
			return (sometimes || always) && !over, nil, apierrors.NewServiceUnavailable("busy")
		})
		f.runLocalServices()
		time.Sleep(5 * time.Second)
		if events := strings.Join(f.recorded(), "\n"); strings.Contains(events, "Warning") || requests.Load() < 40 {
			t.Errorf("after %d requests:\n%s", requests.Load(), events)
		}
		for len(f.services()) < nodes && time.Since(began) < 5*time.Minute {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%d of %d Services are in place after %s", len(f.services()), nodes, took)
		}
	})
}

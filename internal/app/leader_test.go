package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
)

var leaderOptions = &Options{leaderElectionNamespace: "kube-system", leaderElectionID: "demo",
	leaseDuration: 15 * time.Second}

func newHealth() *leaderelection.HealthzAdaptor {
	return leaderelection.NewLeaderHealthzAdaptor(electionTolerance)
}

// holder returns the holder of the Lease, "" for none.
func holder(t *testing.T, kube kubernetes.Interface) string {
	t.Helper()
	lease, err := kube.CoordinationV1().Leases("kube-system").Get(context.WithoutCancel(t.Context()), "demo",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// TestLeaseIsGivenBack: a leader that is stopped releases the Lease once its work has ended, and not before.
func TestLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := kubefake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		worked := false
		if err := Lead(ctx, kube.CoordinationV1(), leaderOptions, newHealth(), func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			worked = true
			if holder(t, kube) == "" {
				t.Error("the Lease was released while work was in progress")
			}
		}); err != nil || !worked {
			t.Errorf("worked: %v, %v", worked, err)
		}
		if got := holder(t, kube); got != "" {
			t.Errorf("%s still holds the Lease", got)
		}
	})
}

// TestStopWhileAcquiring: an instance that is stopped while it acquires the Lease releases it, even if it does not know
// that it has it. It waits for its work, unless that has not begun.
func TestStopWhileAcquiring(t *testing.T) {
	for name, c := range map[string]struct {
		stopAfter time.Duration
		lost      error
	}{
		"the answer is late": {time.Second, nil},
		"the answer is lost": {5 * time.Second, errors.New("no answer")}, // and no update is answered
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := kubefake.NewClientset()
				ctx, stop := context.WithTimeout(t.Context(), c.stopAfter)
				defer stop()
				kube.PrependReactor("create", "leases", func(a core.Action) (bool, runtime.Object, error) {
					_ = kube.Tracker().Create(a.GetResource(), a.(core.CreateAction).GetObject(), a.GetNamespace())
					time.Sleep(2 * time.Second)
					return true, a.(core.CreateAction).GetObject(), c.lost
				})
				kube.PrependReactor("update", "leases", func(core.Action) (bool, runtime.Object, error) {
					return c.lost != nil, nil, c.lost
				})
				began := time.Now()
				var isWorking atomic.Bool
				err := Lead(ctx, kube.CoordinationV1(), leaderOptions, newHealth(), func(ctx context.Context) {
					isWorking.Store(true)
					<-ctx.Done()
					time.Sleep(time.Second)
					isWorking.Store(false)
				})
				if err != nil || isWorking.Load() {
					t.Errorf("%v, still working: %v", err, isWorking.Load())
				}
				if got := holder(t, kube); got != "" && c.lost == nil || time.Since(began) > time.Minute {
					t.Errorf("after %s, %q holds the Lease", time.Since(began), got)
				}
			})
		})
	}
}

// TestLeaseIsLost: a leader that cannot renew the Lease stops its work, and says why it stops. If its work does not
// end, it is not healthy, and does not release the Lease, although it could.
func TestLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := kubefake.NewClientset()
		var broken atomic.Bool
		kube.PrependReactor("update", "leases", func(a core.Action) (bool, runtime.Object, error) {
			lease := a.(core.UpdateAction).GetObject().(*coordinationv1.Lease)
			return broken.Load() && *lease.Spec.HolderIdentity != "", nil, errors.New("no luck")
		})
		health := newHealth()
		worked := false
		if err := Lead(t.Context(), kube.CoordinationV1(), leaderOptions, health, func(ctx context.Context) {
			broken.Store(true)
			<-ctx.Done()
			if err := health.Check(nil); err != nil {
				t.Errorf("at once: %v", err)
			}
			time.Sleep(time.Minute)
			if health.Check(nil) == nil {
				t.Error("its work does not end, and it is healthy")
			}
			if holder(t, kube) == "" {
				t.Error("the Lease was released while work was in progress")
			}
			worked = true
		}); err == nil || !worked {
			t.Errorf("worked: %v, %v", worked, err)
		}
		if got := holder(t, kube); got != "" {
			t.Errorf("%s still holds the Lease", got)
		}
	})
}

// TestStandbyStops: an instance that never leads stops when its context is done, and leaves the Lease to its holder.
func TestStandbyStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := kubefake.NewClientset()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		leading := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			_ = Lead(ctx, kube.CoordinationV1(), leaderOptions, newHealth(), func(ctx context.Context) {
				close(leading)
				<-ctx.Done()
			})
		}()
		<-leading
		before := holder(t, kube)
		standbyCtx, stopStandby := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stopStandby)
		if err := Lead(standbyCtx, kube.CoordinationV1(), leaderOptions, newHealth(), func(context.Context) {
			t.Error("two instances work at the same time")
		}); err != nil {
			t.Errorf("standby: %v", err)
		}
		if got := holder(t, kube); got != before {
			t.Errorf("%s holds the Lease, want %s", got, before)
		}
		stop()
		<-stopped
	})
}

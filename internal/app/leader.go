package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Lead runs work while this instance holds the Lease, until ctx is done or the Lease is lost. The Lease is released
// only when work has returned, so that two instances never work at the same time. health, which may be nil, observes
// whether the Lease is renewed in time.
func Lead(ctx context.Context, kube kubernetes.Interface, opts *Options, health *leaderelection.HealthzAdaptor,
	work func(context.Context)) error {
	lock, err := newLock(kube, opts)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	electionCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var started atomic.Bool
	worked := make(chan struct{})

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: opts.leaderElectionID,
		Lock: lock,
		// A standby may notice a renewal one retry period late, and checks once per retry period whether the Lease has
		// expired, both with jitter. All of this must fit into the duration that the operator chose.
		LeaseDuration:   opts.leaseDuration * 25 / 30,
		RenewDeadline:   opts.leaseDuration * 16 / 30,
		RetryPeriod:     opts.leaseDuration / 30,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				started.Store(true)
				defer close(worked)
				leading, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				klog.FromContext(ctx).Info("Leading", "lease",
					klog.KRef(opts.leaderElectionNamespace, opts.leaderElectionID))
				work(leading)
				release()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != lock.Identity() {
					klog.FromContext(ctx).Info("Standing by", "leader", leader)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	if health != nil {
		health.SetLeaderElection(elector) // LeaderElectionConfig.WatchDog would only do this in RunOrDie.
	}
	// Once work has started, its return releases the Lease.
	defer context.AfterFunc(ctx, func() {
		if !started.Load() {
			release()
		}
	})()
	elector.Run(electionCtx)
	if started.Load() {
		<-worked
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the Lease was lost to another instance, or could not be renewed in time: this instance " +
		"stops, so that it can be restarted as a standby")
}

// newLock makes the Lease of this instance.
func newLock(kube kubernetes.Interface, opts *Options) (resourcelock.Interface, error) {
	hostname, err := os.Hostname()
	return finishingLock{&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: opts.leaderElectionNamespace, Name: opts.leaderElectionID},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())},
	}}, err
}

// finishingLock finishes the Lease request that is under way at a stop. Cut off, it would be logged as an error, and
// would leave unknown who holds the Lease, so that it could not be released.
type finishingLock struct{ resourcelock.Interface }

// finish returns a context with the deadline of another one, but not its cancellation.
func finish(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, hasDeadline := ctx.Deadline(); hasDeadline {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithCancel(context.WithoutCancel(ctx))
}

func (l finishingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	return l.Interface.Get(ctx)
}

func (l finishingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := finish(ctx)
	defer cancel()
	return l.Interface.Create(ctx, record)
}

func (l finishingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := finish(ctx)
	defer cancel()
	return l.Interface.Update(ctx, record)
}

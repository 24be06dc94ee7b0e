package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Lead runs work while this instance holds the Lease, until ctx is done or the Lease is lost. The Lease is given back
// only when work has returned, so that two instances do not work at the same time, unless somebody takes the Lease away
// from its holder: that is noticed at the renew deadline. health observes whether the Lease is renewed in time.
func Lead(ctx context.Context, kube kubernetes.Interface, opts *Options, health *leaderelection.HealthzAdaptor,
	work func(context.Context)) error {
	lock, err := newLock(kube, opts)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	electionCtx, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	var started atomic.Bool // It is set once work begins, or never will.
	worked := make(chan struct{})

	elector, err := newElector(opts, lock, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(leading context.Context) {
			defer close(worked)
			if started.Swap(true) {
				return
			}
			leading, cancel := context.WithCancel(leading)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			klog.FromContext(ctx).Info("Leading", "lease",
				klog.KRef(opts.leaderElectionNamespace, opts.leaderElectionID))
			work(leading)
			endElection()
		},
		OnStoppedLeading: func() {},
		OnNewLeader: func(leader string) {
			if leader != lock.Identity() {
				klog.FromContext(ctx).Info("Standing by", "leader", leader)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	health.SetLeaderElection(elector) // LeaderElectionConfig.WatchDog would only do this in RunOrDie.
	// Once work has started, its return ends the election.
	defer context.AfterFunc(ctx, func() {
		if !started.Load() {
			endElection()
		}
	})()
	elector.Run(electionCtx)
	isWorking := started.Swap(true) // Otherwise a stop has come before work was started.
	if isWorking {
		<-worked
	}
	if isWorking || elector.IsLeader() {
		giveBack(ctx, lock, opts.renewDeadline())
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the Lease was lost to another instance, or could not be renewed in time: this instance " +
		"stops, so that it can be restarted as a standby")
}

// newElector makes an elector for a Lease. A standby may notice a renewal one retry period late, and checks once per
// retry period whether the Lease has expired, both with jitter. All of this must fit into the duration that the
// operator chose.
func newElector(opts *Options, lock resourcelock.Interface,
	callbacks leaderelection.LeaderCallbacks) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          opts.leaderElectionID,
		Lock:          lock,
		LeaseDuration: opts.leaseDuration * 25 / 30,
		RenewDeadline: opts.renewDeadline(),
		RetryPeriod:   opts.leaseDuration / 30,
		Callbacks:     callbacks,
	})
}

// giveBack releases the Lease, if this instance still holds it. client-go would do so before it tells work to stop when
// the Lease cannot be renewed, and would wait for an API server that does not answer in between.
func giveBack(ctx context.Context, lock resourcelock.Interface, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == lock.Identity() {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{LeaderTransitions: record.LeaderTransitions,
			LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now}) // The API server requires a duration.
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // Another instance has it, or nobody.
		klog.FromContext(ctx).Error(err, "Lease not released, it expires later", "lease", lock.Describe())
	}
}

// newLock makes the Lease of this instance.
func newLock(kube kubernetes.Interface, opts *Options) (resourcelock.Interface, error) {
	hostname, err := os.Hostname()
	return finishingLock{&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: opts.leaderElectionNamespace, Name: opts.leaderElectionID},
		Client:     kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())},
	}, opts.renewDeadline()}, err
}

// finishingLock finishes the Lease request that is under way at a stop. Cut off, it would be logged as an error, and
// would leave unknown who holds the Lease, so that it could not be released. No request takes longer than the timeout.
type finishingLock struct {
	resourcelock.Interface
	timeout time.Duration
}

// finish returns a context with the deadline of another one, but not its cancellation.
func (l finishingLock) finish(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, hasDeadline := ctx.Deadline()
	if !hasDeadline { // client-go sets none while it acquires the Lease.
		deadline = time.Now().Add(l.timeout)
	}
	return context.WithDeadline(context.WithoutCancel(ctx), deadline)
}

func (l finishingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := l.finish(ctx)
	defer cancel()
	return l.Interface.Get(ctx)
}

func (l finishingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.finish(ctx)
	defer cancel()
	return l.Interface.Create(ctx, record)
}

func (l finishingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.finish(ctx)
	defer cancel()
	return l.Interface.Update(ctx, record)
}

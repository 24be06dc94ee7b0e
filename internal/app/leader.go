package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// Lead runs work while this instance holds the Lease, until ctx is done or the Lease is lost. The Lease is given back
// only when work has returned, so that two instances do not work at the same time, unless somebody takes the Lease away
// from its holder: that is noticed at the renew deadline. health observes whether the Lease is renewed in time.
func Lead(ctx context.Context, leases coordinationv1.LeasesGetter, opts *Options,
	health *leaderelection.HealthzAdaptor, work func(context.Context)) error {
	lock, err := newLock(leases, opts)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	leads := make(chan context.Context, 1) // A stop may come before work is started.
	elector, err := newElector(opts, lock, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(leading context.Context) { leads <- leading },
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
	electionCtx, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(electionCtx)
	}()

	select {
	case <-ctx.Done():
	case leading := <-leads:
		klog.FromContext(ctx).Info("Leading", "lease", klog.KRef(opts.leaderElectionNamespace, opts.leaderElectionID))
		leading, cancel := context.WithCancel(leading)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		work(leading)
	}
	endElection()
	<-ended
	giveBack(ctx, lock, opts)
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

// giveBack releases the Lease, if this instance still holds it. The election's last request may still arrive, so it
// tries again after a conflict. With ReleaseOnCancel, client-go 0.37 would release a Lease that it cannot renew while
// work still runs, and whoever holds it by then.
func giveBack(ctx context.Context, lock resourcelock.Interface, opts *Options) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opts.renewDeadline())
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != lock.Identity() {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{LeaderTransitions: record.LeaderTransitions,
			LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now}) // The API server requires a duration.
	})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Lease not released, it expires later", "lease", lock.Describe())
	}
}

// newLock makes the Lease of this instance.
func newLock(leases coordinationv1.LeasesGetter, opts *Options) (resourcelock.Interface, error) {
	hostname, err := os.Hostname()
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: opts.leaderElectionNamespace, Name: opts.leaderElectionID},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())},
	}, err
}

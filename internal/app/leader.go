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

// Lead runs work while this instance holds the Lease, until ctx is done or the Lease is lost. The Lease is given back
// only when work has returned, so that two instances never work at the same time. health, which may be nil, learns
// whether the Lease is renewed in time.
func Lead(ctx context.Context, kube kubernetes.Interface, opts *Options, health *leaderelection.HealthzAdaptor,
	work func(context.Context)) error {
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	identity := hostname + "_" + string(uuid.NewUUID())
	electionCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var started atomic.Bool
	worked := make(chan struct{})

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: opts.leaderElectionID,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: opts.leaderElectionNamespace, Name: opts.leaderElectionID},
			Client:     kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		// A standby notices a renewal up to a retry late, and looks whether the Lease has ended once in a retry, each
		// with jitter. All of that is to be over within the duration that the operator chose.
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
				if leader != identity {
					klog.FromContext(ctx).Info("Standing by", "leader", leader)
				}
			},
		},
		WatchDog: health,
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	// Once work has started it is work's return that releases.
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
		"stops, so that it can be started anew as a standby")
}

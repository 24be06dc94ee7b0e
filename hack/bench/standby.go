package main

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// besideStandby calls use while a controller stands by. It watches what a leader watches, and the API server sends it
// the same events, but it writes nothing. So bare clients share the processors with the same watches as the controller.
func (s *scene) besideStandby(ctx context.Context, use func()) {
	seconds, now := int32(24*time.Hour/time.Second), metav1.NowMicro()
	leases, name := s.Kube.CoordinationV1().Leases(framework.ControllerNamespace), framework.ControllerAccount
	try(s.ControllerKubeconfig(ctx))                     // It makes the namespace.
	_ = leases.Delete(ctx, name, metav1.DeleteOptions{}) // An earlier controller has left it.
	try(leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("the benchmark"), LeaseDurationSeconds: &seconds,
			AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{}))
	defer func() { s.note(leases.Delete(ctx, name, metav1.DeleteOptions{})) }()
	p := s.startController("-leader-elect", "-leader-election-namespace="+framework.ControllerNamespace)
	defer func() { s.note(p.Stop()) }()
	try(p.WaitLog(ctx, "Standing by"))
	s.awaitRest(ctx, restTime)
	use()
}

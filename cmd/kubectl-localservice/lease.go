package main

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

const (
	// leaseName is the default name of the controller's Lease, and leaseNamespace where the documents install it.
	leaseName      = "local-service-controller"
	leaseNamespace = "local-service-system"
	// renewals is how often a controller that runs renews its Lease while the Lease lasts, at least.
	renewals = 5
	// longestLease bounds how long a Lease is waited for, whatever it says.
	longestLease = time.Minute
	// clockSkew is by how much the clocks of machines may differ. A Lease that was renewed later is not a controller's.
	clockSkew = 5 * time.Minute
)

// controller finds out from the controller's Lease whether it runs, the zero value if that cannot be known: a
// controller outside the cluster has none, and many users may not read it. The clocks of this machine and of the
// controller may differ, so a Lease that seems to be old is read again after it should have been renewed.
func (c *cluster) controller(ctx context.Context) diagnose.Controller {
	lease := c.lease(ctx)
	if lease == nil {
		return diagnose.Controller{}
	}
	holder, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if len(content.IsDNS1123Subdomain(holder)) > 0 {
		holder = "POD" // Messages have commands to copy, and whoever may write Leases can write anything here.
	}
	found := diagnose.Controller{Namespace: lease.Namespace, Name: lease.Name, Holder: holder,
		Renewed: lease.Spec.RenewTime.Time}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if time.Since(found.Renewed) <= lasts {
		return found
	}
	wait(ctx, min(max(lasts, renewals*time.Second), longestLease)/renewals)
	again := c.lease(ctx)
	found.Stopped = again != nil && again.Spec.RenewTime.Equal(lease.Spec.RenewTime)
	return found
}

// lease returns the controller's Lease, nil if there is none: the one where the documents install it, otherwise the one
// that was renewed last, of those with its name.
func (c *cluster) lease(ctx context.Context) (newest *coordinationv1.Lease) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, leaseName).String()}
	for _, namespace := range []string{metav1.NamespaceAll, leaseNamespace} {
		list, err := c.kube.CoordinationV1().Leases(namespace).List(ctx, named)
		if err != nil {
			continue // The user may be allowed to read those of one namespace.
		}
		for i := range list.Items {
			lease := &list.Items[i]
			if lease.Name != leaseName || lease.Spec.RenewTime == nil ||
				time.Until(lease.Spec.RenewTime.Time) > clockSkew {
				continue
			}
			if lease.Namespace == leaseNamespace {
				return lease
			}
			if newest == nil || newest.Spec.RenewTime.Before(lease.Spec.RenewTime) {
				newest = lease
			}
		}
		return newest
	}
	return nil
}

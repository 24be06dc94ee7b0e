package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// permissionInterval is how often the API server is asked whether a missing permission has been granted.
const permissionInterval = 5 * time.Second

// retryWhenPermitted retries refused writes soon after the permission to write EndpointSlices is granted: their backoff
// may be two minutes. It asks for each of the namespaces, or for all at once if there are none, so a thousand
// LocalServices cost no more than one. Their status shows which of them wait, so there is nothing to remember.
func (c *hostnamesController) retryWhenPermitted(ctx context.Context, namespaces []string) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, namespace := range namespaces {
			waiting := c.notPermitted(namespace)
			if len(waiting) == 0 || !app.MayPublishHostnames(ctx, c.copies.Kube, namespace) {
				continue
			}
			klog.FromContext(ctx).Info("The permission to write EndpointSlices has been granted",
				"localServices", len(waiting))
			for _, ls := range waiting {
				c.copies.Refusals.Forget(ls.UID)
				c.addAll(cache.KeyOf(ls))
			}
		}
	}, permissionInterval)
}

// notPermitted returns the LocalServices of a namespace, or of all, whose names are not published because the
// permission is missing.
func (c *hostnamesController) notPermitted(namespace string) (waiting []*v1alpha1.LocalService) {
	for ls := range c.caches.LocalServices.All() {
		ready := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady)
		// The status of one that is being deleted stays as it is.
		if ls.DeletionTimestamp == nil && ready != nil && ready.Reason == v1alpha1.ReasonHostnamesNotPermitted &&
			(namespace == metav1.NamespaceAll || namespace == ls.Namespace) {
			waiting = append(waiting, ls)
		}
	}
	return waiting
}

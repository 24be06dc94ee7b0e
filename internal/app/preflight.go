package app

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// retryInterval is how often the cluster is checked again while something is missing.
	retryInterval = 2 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 10 * time.Second

	installCRD  = "install crd.yaml of the release (in the source artifacts/examples/crd.yaml)"
	installRBAC = "grant them as in local-service-controller.yaml of the release (in the source artifacts/deploy)"
	installRole = "grant them as in docs/reference/permissions.md"

	badCredentials = "the API server does not accept the token: it has expired or is of another cluster, or the service " +
		"account was deleted and created again: recreate the controller's pods, or check -kubeconfig"
)

// waitForCluster waits until the API server knows LocalServices, and logs what it waits for. Its error is that of ctx.
// Missing permissions show when they are needed.
func waitForCluster(ctx context.Context, kube kubernetes.Interface) error {
	complaints := NewComplaints()
	gv := v1alpha1.SchemeGroupVersion.String()
	return wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (done bool, _ error) {
		attempt, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		_, err := kube.Discovery().ServerResourcesForGroupVersionWithContext(attempt, gv)
		if err == nil {
			return true, ctx.Err()
		}
		message := "Waiting: the API server cannot be used: check -kubeconfig, and that the cluster runs"
		if apierrors.IsNotFound(err) {
			message = "Waiting: the cluster does not know LocalServices (" + gv + "): " + installCRD
		} else if apierrors.IsUnauthorized(err) {
			message = "Waiting: " + badCredentials
		}
		if ctx.Err() == nil && complaints.IsNews("", message+string(apierrors.ReasonForError(err))) {
			// The words of the cause may change with each attempt.
			klog.FromContext(ctx).Info(message, "err", err, "retryInterval", retryInterval)
		}
		return false, nil
	})
}

// logReadErrors returns a function that logs why a resource cannot be listed or watched, and what to do about it, but
// not at every attempt. Without an error it can be again.
func logReadErrors(opts *Options) func(ctx context.Context, resource string, err error) {
	install, complaints := installRBAC, NewComplaints()
	if len(opts.Namespaces) > 0 {
		install = installRole
	}
	return func(ctx context.Context, resource string, err error) {
		message := "The API server cannot be watched: the caches are stale until this works again"
		switch {
		case err == nil:
			message = "The API server can be watched again"
		case apierrors.IsNotFound(err):
			message = "The cluster does not know this resource any more: " + installCRD
		case apierrors.IsForbidden(err):
			message = "Permissions are missing: " + install
		case apierrors.IsUnauthorized(err):
			message = "The caches are stale: " + badCredentials
		}
		logger := klog.FromContext(ctx)
		switch isNews := ctx.Err() == nil && complaints.IsNews(resource, message+string(apierrors.ReasonForError(err))); {
		case isNews && err == nil:
			logger.Info(message, "resource", resource)
		case isNews:
			logger.Error(err, message, "resource", resource)
		}
	}
}

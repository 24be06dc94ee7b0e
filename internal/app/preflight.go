package app

import (
	"context"
	"fmt"
	"strings"
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

	// causeSeparator stands between our message and the error that caused it.
	causeSeparator = ": the answer is: "

	installCRD  = "install crd.yaml of the release (in the source artifacts/examples/crd.yaml)"
	installRBAC = "grant them as in local-service-controller.yaml of the release (in the source artifacts/deploy)"
	installRole = "grant them as in docs/reference/permissions.md"
)

// preflight finds what a cluster lacks, and says what to do about it.
type preflight struct {
	host       string
	kube       kubernetes.Interface
	namespaces []string // to work in, none for all
	complaints *Complaints
}

// check returns what is missing before the caches can be filled, nil if nothing is. Missing permissions show when they
// are needed.
func (c *preflight) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	gv := v1alpha1.SchemeGroupVersion.String()
	_, err := c.kube.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gv)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster does not know LocalServices (%s): %s", gv, installCRD)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not accept our credentials: check "+
			"-kubeconfig"+causeSeparator+"%w", c.host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not authorized to discover the API %s: %w", gv, err)
	case err != nil:
		return fmt.Errorf("the API server at %s cannot be reached: check -kubeconfig, and that the cluster "+
			"runs"+causeSeparator+"%w", c.host, err)
	}
	return nil
}

// wait checks until nothing is missing, and logs what it waits for. Its error is that of ctx.
func (c *preflight) wait(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (done bool, _ error) {
		err := c.check(ctx)
		if err == nil {
			return true, ctx.Err()
		}
		// The words of the cause may change with each attempt.
		message, _, _ := strings.Cut(err.Error(), causeSeparator)
		if ctx.Err() == nil && c.complaints.IsNews("", message) {
			klog.FromContext(ctx).Info("Waiting: "+err.Error(), "retryInterval", retryInterval)
		}
		return false, nil
	})
}

// logReadError logs why a resource cannot be listed or watched, but not at every attempt, and without an error that it
// can be again.
func (c *preflight) logReadError(ctx context.Context, resource string, err error) {
	message, logger := c.explain(err), klog.FromContext(ctx)
	switch isNews := ctx.Err() == nil && c.complaints.IsNews(resource, message); {
	case isNews && err == nil:
		logger.Info(message, "resource", resource)
	case isNews:
		logger.Error(err, message, "resource", resource)
	}
}

func (c *preflight) explain(err error) (message string) {
	install := installRBAC
	if len(c.namespaces) > 0 {
		install = installRole
	}
	switch {
	case err == nil:
		return "The API server can be watched again"
	case apierrors.IsNotFound(err):
		return "The cluster does not know this resource any more: " + installCRD
	case apierrors.IsForbidden(err):
		return "Permissions are missing: " + install
	case apierrors.IsUnauthorized(err):
		return "The API server does not accept our credentials any more: check -kubeconfig"
	}
	return "The API server cannot be watched: the caches are stale until this works again"
}

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// retryInterval is how often the cluster is looked at again while something is missing.
	retryInterval = 2 * time.Second
	// checkTimeout bounds one look.
	checkTimeout = 10 * time.Second
	// repeatInterval is how often the same complaint is logged again.
	repeatInterval = 5 * time.Minute

	// causeSeparator stands between what we say and the error that makes us say it.
	causeSeparator = ": the answer is: "

	installCRD  = "install it with `kubectl create -f artifacts/examples/crd.yaml`"
	installRBAC = "grant them as in artifacts/deploy/local-service-controller.yaml"
)

// preflight finds the first thing that a cluster lacks.
type preflight struct {
	host           string
	kube           kubernetes.Interface
	leaseNamespace string // of the leader election's Lease, "" for none
}

// check returns what is missing and what to do about it, nil for nothing.
func (c *preflight) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	gv := v1alpha1.SchemeGroupVersion.String()
	// Discovery takes no context; the path is small and fixed.
	err := c.kube.Discovery().RESTClient().Get().AbsPath("/apis", gv).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the cluster does not know LocalServices (%s): %s", gv, installCRD)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not accept our credentials: check "+
			"-kubeconfig"+causeSeparator+"%w", c.host, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("we may not even ask which APIs there are: %w", err)
	case err != nil:
		return fmt.Errorf("the API server at %s cannot be reached: check -kubeconfig, and that the cluster "+
			"runs"+causeSeparator+"%w", c.host, err)
	}
	return c.permissions(ctx)
}

// permission is to do some things with a resource.
type permission struct {
	group, resource, subresource, namespace string
	verbs                                   []string
}

func (c *preflight) needed() []permission {
	needed := []permission{
		{v1alpha1.GroupName, "localservices", "", "", []string{"get", "list", "watch"}},
		{v1alpha1.GroupName, "localservices", "status", "", []string{"patch"}},
		{"", "nodes", "", "", []string{"get", "list", "watch"}},
		{"", "services", "", "", []string{"list", "watch", "create", "patch", "delete"}},
		{"discovery.k8s.io", "endpointslices", "", "", []string{"list", "watch"}},
		{"networking.k8s.io", "servicecidrs", "", "", []string{"list", "watch"}},
		{"", "pods", "", "", []string{"list", "watch", "patch"}},
		{"events.k8s.io", "events", "", "", []string{"create", "patch"}},
	}
	if c.leaseNamespace != "" {
		needed = append(needed,
			permission{"coordination.k8s.io", "leases", "", c.leaseNamespace, []string{"get", "create", "update"}})
	}
	return needed
}

// permissions returns all that is not granted to us, in one error.
func (c *preflight) permissions(ctx context.Context) error {
	var missing []string
	for _, p := range c.needed() {
		for _, verb := range p.verbs {
			review := &authorizationv1.SelfSubjectAccessReview{}
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace}
			review, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
				metav1.CreateOptions{})
			switch {
			case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
				return nil // We may not ask what we may do: then the work itself will tell.
			case err != nil:
				return fmt.Errorf("the API server at %s does not say what we may do: %w", c.host, err)
			case !review.Status.Allowed:
				missing = append(missing, p.describe(verb))
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("permissions are missing: %s: %s", strings.Join(missing, ", "), installRBAC)
	}
	return nil
}

func (p *permission) describe(verb string) string {
	what := verb + " " + p.resource
	if p.subresource != "" {
		what += "/" + p.subresource
	}
	if p.group != "" {
		what += "." + p.group
	}
	if p.namespace != "" {
		what += " in namespace " + p.namespace
	}
	return what
}

// wait checks until nothing is missing, and tells in the log what it waits for. Its error is that of ctx.
func (c *preflight) wait(ctx context.Context) error {
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	complaints := newComplaints()
	for {
		err := c.check(ctx)
		if err == nil {
			return ctx.Err()
		}
		// The cause may be told in other words at each attempt.
		message, _, _ := strings.Cut(err.Error(), causeSeparator)
		if ctx.Err() == nil && complaints.isNews("", message, repeatInterval) {
			klog.FromContext(ctx).Info("Waiting: "+err.Error(), "retryInterval", retryInterval)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// watchErrorHandler tells what is wrong when a resource cannot be listed or watched, once and not at every retry of
// the reflector, which has its own backoff.
func watchErrorHandler(resource string) cache.WatchErrorHandlerWithContext {
	complaints := newComplaints()
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		message, harmless := explain(resource, err)
		logger := klog.FromContext(ctx)
		switch {
		case ctx.Err() != nil:
		case harmless:
			logger.V(4).Info("The watch begins anew", "resource", resource, "reason", err.Error())
		case complaints.isNews(resource, message, repeatInterval):
			logger.Error(err, message, "resource", resource)
		}
	}
}

func explain(resource string, err error) (message string, harmless bool) {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), utilnet.IsProbableEOF(err),
		errors.Is(err, context.Canceled):
		return "", true
	case apierrors.IsNotFound(err):
		return "The cluster does not know this resource any more: " + installCRD, false
	case apierrors.IsForbidden(err):
		return "Permissions are missing: " + installRBAC, false
	case apierrors.IsUnauthorized(err):
		return "The API server does not accept our credentials any more: check -kubeconfig", false
	}
	return "The API server cannot be watched: what we know of the cluster gets old until this works again", false
}

// complaints remembers for a while what was said last about each subject.
type complaints struct{ *utilcache.LRUExpireCache }

func newComplaints() complaints { return complaints{utilcache.NewLRUExpireCache(100)} }

// isNews reports whether a message is worth saying, and remembers it.
func (c complaints) isNews(subject, message string, interval time.Duration) bool {
	if last, said := c.Get(subject); said && last == message {
		return false
	}
	c.Add(subject, message, interval)
	return true
}

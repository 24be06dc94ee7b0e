package app

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// retryInterval is how often the cluster is checked again while something is missing.
	retryInterval = 2 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 10 * time.Second
	// namespaceInterval is how often each namespace that lacks something is checked again: there may be many.
	namespaceInterval = 10 * time.Second
	// repeatInterval is how often the same complaint is logged again.
	repeatInterval = 5 * time.Minute

	// causeSeparator stands between our message and the error that caused it.
	causeSeparator = ": the answer is: "

	installCRD  = "install crd.yaml of the release (in the source artifacts/examples/crd.yaml)"
	installRBAC = "grant them as in local-service-controller.yaml of the release (in the source artifacts/deploy)"
	installRole = "grant them as in docs/reference/permissions.md"
)

// preflight finds the first thing that a cluster lacks.
type preflight struct {
	host           string
	kube           kubernetes.Interface
	leaseNamespace string   // of the leader election's Lease, "" for none
	namespaces     []string // to work in, none for all
	labelPods      bool
}

// check returns what is missing and what to do about it, nil if nothing is.
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
	needed := []permission{{"", "nodes", "", "", []string{"get", "list", "watch"}}}
	if len(c.namespaces) == 0 {
		needed = append(needed, c.permissionsIn(metav1.NamespaceAll)...)
	}
	if c.leaseNamespace != "" {
		needed = append(needed,
			permission{"coordination.k8s.io", "leases", "", c.leaseNamespace, []string{"get", "create", "update"}})
	}
	missing, err := c.missing(ctx, needed)
	if len(missing) > 0 {
		err = fmt.Errorf("permissions are missing: %s: %s", strings.Join(missing, ", "), c.install())
	}
	return err
}

// install says how to grant permissions.
func (c *preflight) install() string {
	if len(c.namespaces) > 0 {
		return installRole
	}
	return installRBAC
}

// checkNamespace returns what a namespace does not grant, nil if it grants all. One that does not exist grants nothing.
func (c *preflight) checkNamespace(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	missing, err := c.missing(ctx, c.permissionsIn(namespace))
	if len(missing) > 0 {
		err = fmt.Errorf("namespace %s is skipped until it exists and permissions are granted there: %s: %s",
			namespace, strings.Join(missing, ", "), c.install())
	}
	return err
}

// open opens each namespace that grants what is needed. It keeps checking the others until ctx is done.
func (c *preflight) open(ctx context.Context, open func(namespace string)) {
	for _, namespace := range c.namespaces {
		check := func(ctx context.Context) error { return c.checkNamespace(ctx, namespace) }
		if check(ctx) == nil {
			open(namespace)
			continue
		}
		go func() {
			if waitUntil(ctx, check, namespaceInterval) == nil {
				klog.FromContext(ctx).Info("The namespace is now watched", "namespace", namespace)
				open(namespace)
			}
		}()
	}
}

// permission is the permission to use some verbs on a resource.
type permission struct {
	group, resource, subresource, namespace string
	verbs                                   []string
}

// permissionsIn returns the permissions that are needed in a namespace, or in all for "".
func (c *preflight) permissionsIn(namespace string) []permission {
	needed := []permission{
		{v1alpha1.GroupName, "localservices", "", namespace, []string{"get", "list", "watch"}},
		{v1alpha1.GroupName, "localservices", "status", namespace, []string{"update"}},
		{"", "services", "", namespace, []string{"list", "watch", "create", "patch", "delete"}},
		{"discovery.k8s.io", "endpointslices", "", namespace, []string{"list", "watch"}},
		{"events.k8s.io", "events", "", namespace, []string{"create", "patch"}},
	}
	if c.labelPods {
		needed = append(needed, permission{"", "pods", "", namespace, []string{"list", "watch", "patch"}})
	}
	return needed
}

// missing returns the needed permissions that are not granted to us.
func (c *preflight) missing(ctx context.Context, needed []permission) (missing []string, err error) {
	for _, p := range needed {
		for _, verb := range p.verbs {
			isAllowed, err := p.isAllowed(ctx, c.kube, verb)
			switch {
			case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
				return nil, nil // Not authorized to review access: the work itself will show what is missing.
			case err != nil:
				return nil, fmt.Errorf("the API server at %s cannot review our permissions: %w", c.host, err)
			case !isAllowed:
				missing = append(missing, p.describe(verb))
			}
		}
	}
	return missing, nil
}

// isAllowed asks the API server whether a verb of a permission is granted to us.
func (p *permission) isAllowed(ctx context.Context, kube kubernetes.Interface, verb string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Namespace: p.namespace}
	review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed, err
}

func (p *permission) describe(verb string) string {
	what := schema.GroupResource{Group: p.group, Resource: path.Join(p.resource, p.subresource)}.String()
	if p.namespace != "" {
		what += " in namespace " + p.namespace
	}
	return verb + " " + what
}

// waitUntil checks until nothing is missing, and logs what it waits for. Its error is that of ctx.
func waitUntil(ctx context.Context, check func(context.Context) error, interval time.Duration) error {
	complaints := newComplaints()
	return wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (done bool, _ error) {
		err := check(ctx)
		if err == nil {
			return true, ctx.Err()
		}
		// The words of the cause may change with each attempt.
		message, _, _ := strings.Cut(err.Error(), causeSeparator)
		if ctx.Err() == nil && complaints.isNews("", message) {
			klog.FromContext(ctx).Info("Waiting: "+err.Error(), "retryInterval", interval)
		}
		return false, nil
	})
}

// watchErrorHandler logs why a resource cannot be listed or watched, but not at every retry of the reflector, which has
// its own backoff.
func (c *preflight) watchErrorHandler(resource string) cache.WatchErrorHandlerWithContext {
	complaints := newComplaints()
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		message, harmless := c.explain(err)
		logger := klog.FromContext(ctx)
		switch {
		case ctx.Err() != nil:
		case harmless:
			logger.V(4).Info("The watch restarts", "resource", resource, "reason", err.Error())
		case complaints.isNews(resource, message):
			logger.Error(err, message, "resource", resource)
		}
	}
}

func (c *preflight) explain(err error) (message string, harmless bool) {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), utilnet.IsProbableEOF(err),
		errors.Is(err, context.Canceled):
		return "", true
	case apierrors.IsNotFound(err):
		return "The cluster does not know this resource any more: " + installCRD, false
	case apierrors.IsForbidden(err):
		return "Permissions are missing: " + c.install(), false
	case apierrors.IsUnauthorized(err):
		return "The API server does not accept our credentials any more: check -kubeconfig", false
	}
	return "The API server cannot be watched: the caches are stale until this works again", false
}

// complaints remembers, for a while, the last message that was logged about each subject.
type complaints struct{ *utilcache.LRUExpireCache }

func newComplaints() complaints { return complaints{utilcache.NewLRUExpireCache(100)} }

// isNews reports whether a message is worth logging, and remembers it.
func (c complaints) isNews(subject, message string) bool {
	if last, logged := c.Get(subject); logged && last == message {
		return false
	}
	c.Add(subject, message, repeatInterval)
	return true
}

package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	leaseName = "local-service-controller" // by default
	renewal   = 3 * time.Second            // A controller that runs renews its Lease twice a second, by default.
	clockSkew = 5 * time.Minute            // of machines. A Lease that was renewed later is not a controller's.

	aroundLasts   = 15 * time.Second // A watch keeps for so long what it has seen around LocalServices.
	aroundTimeout = 5 * time.Second  // The nodes are not shown before a look around ends.
	aroundLimit   = 500              // objects of each kind
)

// readController finds out from the controller's Lease whether it runs, the zero value if that cannot be known: a
// controller outside the cluster has none, and many users may not read it. The clocks of this machine and of the
// controller may differ, so a Lease that seems to be old is read again after it should have been renewed.
func (c *cluster) readController(ctx context.Context) diagnose.Controller {
	lease, watched := c.lease(ctx)
	if lease == nil {
		return diagnose.Controller{}
	}
	holder, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if holder != "" && len(content.IsDNS1123Subdomain(holder)) > 0 {
		holder = "POD" // Messages have commands to copy, and whoever may write Leases can write anything here.
	}
	found := diagnose.Controller{Namespace: lease.Namespace, Name: lease.Name, Holder: holder,
		Renewed: lease.Spec.RenewTime.Time, Namespaces: watched,
		Unguarded: lease.Annotations[v1alpha1.UnguardedAnnotationKey]}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if holder != "" && time.Since(found.Renewed) <= lasts {
		return found
	}
	sleep(ctx, renewal)
	again, _ := c.lease(ctx)
	found.Stopped = again != nil && again.Spec.RenewTime.Equal(lease.Spec.RenewTime)
	return found
}

// lease returns the controller's Lease, nil if there is none that may be read: the one where the documents install it,
// otherwise the one that was renewed last, of those with its name. Several controllers may share the cluster: watched
// has the namespaces of all that hold a Lease, and metav1.NamespaceAll if one of them watches all.
func (c *cluster) lease(ctx context.Context) (lease *coordinationv1.Lease, watched []string) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, leaseName).String()}
	list, err := c.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, named)
	if err != nil {
		list, err = c.kube.CoordinationV1().Leases(diagnose.UsualNamespace).List(ctx, named)
	}
	rank := func(l *coordinationv1.Lease) int { // Anybody may make one that nobody holds.
		return map[string]int{diagnose.UsualNamespace: 2}[l.Namespace] + min(len(ptr.Deref(l.Spec.HolderIdentity, "")), 1)
	}
	for i := 0; err == nil && i < len(list.Items); i++ {
		l := &list.Items[i]
		if l.Spec.RenewTime == nil || time.Until(l.Spec.RenewTime.Time) > clockSkew {
			continue
		}
		if rank(l) > 0 {
			watched = append(watched, strings.Split(l.Annotations[v1alpha1.NamespacesAnnotationKey], ",")...)
		}
		if lease == nil || cmp.Or(rank(l)-rank(lease), l.Spec.RenewTime.Compare(lease.Spec.RenewTime.Time)) > 0 {
			lease = l
		}
	}
	return lease, watched
}

// lookAround reads what says why pods of a namespace are missing. What the user may not read is left out.
func (c *cluster) lookAround(ctx context.Context, namespace string) (out diagnose.Around) {
	ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
	defer cancel()
	opts, apps := metav1.ListOptions{Limit: aroundLimit}, c.kube.AppsV1()
	add := func(kind string, meta metav1.ObjectMeta, template corev1.PodTemplateSpec, replicas int32) {
		out.Workloads = append(out.Workloads, diagnose.Workload{PodTemplateSpec: template, Kind: kind, Name: meta.Name,
			Replicas: replicas})
	}
	// Each of these may fail without the others, and then lists nothing.
	pods, _ := c.kube.CoreV1().Pods(namespace).List(ctx, opts)
	out.Pods = pods.Items
	deployments, _ := apps.Deployments(namespace).List(ctx, opts)
	for _, d := range deployments.Items {
		add("Deployment", d.ObjectMeta, d.Spec.Template, ptr.Deref(d.Spec.Replicas, 1))
	}
	statefulSets, _ := apps.StatefulSets(namespace).List(ctx, opts)
	for _, s := range statefulSets.Items {
		add("StatefulSet", s.ObjectMeta, s.Spec.Template, ptr.Deref(s.Spec.Replicas, 1))
	}
	daemonSets, _ := apps.DaemonSets(namespace).List(ctx, opts)
	for _, d := range daemonSets.Items {
		add("DaemonSet", d.ObjectMeta, d.Spec.Template, d.Status.DesiredNumberScheduled)
	}
	for _, reason := range diagnose.EventReasons {
		opts.FieldSelector = fields.OneTermEqualSelector("reason", reason).String()
		events, _ := c.kube.CoreV1().Events(namespace).List(ctx, opts)
		out.Events = append(out.Events, events.Items...)
	}
	return out
}

// elsewhere returns other namespaces with pods like those of a LocalService, as far as the user may list them.
func (c *cluster) elsewhere(ctx context.Context, ls *v1alpha1.LocalService) []string {
	ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
	defer cancel()
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: aroundLimit,
		LabelSelector: selectorOf(ls.Spec.Selector).String()})
	namespaces := sets.New[string]()
	for i := 0; err == nil && i < len(pods.Items); i++ {
		namespaces.Insert(pods.Items[i].Namespace)
	}
	return sets.List(namespaces.Delete(ls.Namespace))
}

// selectorOf selects nothing by a label that no object can have.
func selectorOf(set labels.Set) labels.Selector {
	selector, err := labels.ValidatedSelectorFromSet(set)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

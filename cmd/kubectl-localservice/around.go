package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// aroundLasts is for how long a watch keeps what it has seen around a LocalService.
	aroundLasts = time.Minute
	// aroundTimeout bounds how long a look around takes: the nodes are not shown before it ends.
	aroundTimeout = 5 * time.Second
	// aroundLimit is how many objects of each kind a look around reads.
	aroundLimit = 500
)

// around looks around a LocalService that has no pods: for what would make them, and for others like them. What the
// user may not read is left out.
type around struct {
	*cluster

	seen *utilcache.Expiring // by namespace, name and selector
}

// of returns what is around a LocalService, as it was at most a minute ago.
func (a *around) of(ctx context.Context, ls *v1alpha1.LocalService) *diagnose.Around {
	key := cache.MetaObjectToName(ls).String() + " " + labels.FormatLabels(ls.Spec.Selector)
	if before, found := a.seen.Get(key); found {
		return before.(*diagnose.Around)
	}
	now := a.look(ctx, ls)
	a.seen.Set(key, now, aroundLasts)
	return now
}

func (a *around) look(ctx context.Context, ls *v1alpha1.LocalService) *diagnose.Around {
	ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
	defer cancel()
	out, opts, apps := &diagnose.Around{}, metav1.ListOptions{Limit: aroundLimit}, a.kube.AppsV1()
	add := func(kind, name string, template labels.Set, replicas int32) {
		out.Workloads = append(out.Workloads, diagnose.Workload{Kind: kind, Name: name, Labels: template,
			Replicas: replicas})
	}
	// Each of these may fail without the others.
	deployments, err := apps.Deployments(ls.Namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(deployments.Items); i++ {
		d := &deployments.Items[i]
		add("Deployment", d.Name, d.Spec.Template.Labels, ptr.Deref(d.Spec.Replicas, 1))
	}
	statefulSets, err := apps.StatefulSets(ls.Namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(statefulSets.Items); i++ {
		s := &statefulSets.Items[i]
		add("StatefulSet", s.Name, s.Spec.Template.Labels, ptr.Deref(s.Spec.Replicas, 1))
	}
	daemonSets, err := apps.DaemonSets(ls.Namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(daemonSets.Items); i++ {
		d := &daemonSets.Items[i]
		add("DaemonSet", d.Name, d.Spec.Template.Labels, d.Status.DesiredNumberScheduled)
	}
	pods, err := a.kube.CoreV1().Pods(ls.Namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(pods.Items); i++ {
		out.Pods = append(out.Pods, pods.Items[i].Labels)
	}
	opts.LabelSelector = selectorOf(ls.Spec.Selector).String()
	elsewhere, err := a.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
	namespaces := sets.New[string]()
	for i := 0; err == nil && i < len(elsewhere.Items); i++ {
		namespaces.Insert(elsewhere.Items[i].Namespace)
	}
	out.Namespaces = sets.List(namespaces.Delete(ls.Namespace))
	return out
}

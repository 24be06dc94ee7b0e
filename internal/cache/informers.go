// Package cache holds the caches of the informers. They take most of the controller's memory, and grow with the
// cluster. So they keep only the fields of each object that are read, and pack Pods and Nodes, of which there are most.
package cache

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// namespaceTimeout limits how long the start waits for one of several namespaces.
const namespaceTimeout = 5 * time.Second

// scheduledPods selects, at the API server, the pods to which a label is of use. Completed ones serve no traffic, and
// stay unchanged.
var scheduledPods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
).String()

// Caches hold all resources that the controllers watch.
type Caches struct {
	LocalServices  *Store[*v1alpha1.LocalService]
	Nodes          *Nodes
	Services       *Store[*corev1.Service]
	EndpointSlices *Store[*discoveryv1.EndpointSlice]
	HostnameSlices *Store[*discoveryv1.EndpointSlice]
	Pods           *Pods

	namespaces []string // that are watched; metav1.NamespaceAll for all
}

// Options configure the caches.
type Options struct {
	Kube     kubernetes.Interface
	Metadata metadata.Interface
	// Dynamic reads LocalServices as they are stored. A typed client could read none of them if one did not fit the
	// type, for example because the CustomResourceDefinition is older or was edited.
	Dynamic dynamic.Interface
	// Namespaces are watched. If there are none, all are.
	Namespaces   []string
	NodeLabelKey string
	// Pods is true to watch pods once a LocalService needs labels on them, and AllPods to watch them from the start.
	Pods, AllPods bool
	// OnReadError is called with the error of a list or watch that has failed for a while, and with nil once it works
	// again.
	OnReadError func(ctx context.Context, resource string, err error)
	// OnRestore is called when etcd was restored from a backup. The caches are stale from then on.
	OnRestore func(error)
}

// New makes the caches. They are empty until Start.
func New(o Options) *Caches {
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	localServices := func(namespace string) Reader {
		client := o.Dynamic.Resource(LocalServiceResource).Namespace(namespace)
		reader := NewReader(o.Dynamic, client.List, client.Watch)
		reader.resync = resyncPeriod
		return reader
	}
	services := func(namespace string) Reader {
		client := o.Kube.CoreV1().Services(namespace)
		return NewReader(o.Kube, client.List, client.Watch)
	}
	nodes := func(string) Reader {
		client := o.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
		return NewReader(o.Metadata, client.List, client.Watch)
	}
	pods := func(namespace string) Reader {
		client := o.Kube.CoreV1().Pods(namespace)
		return NewReader(o.Kube, client.List, client.Watch).selecting("", scheduledPods)
	}
	slices := func(labels string) func(namespace string) Reader {
		return func(namespace string) Reader {
			client := o.Kube.DiscoveryV1().EndpointSlices(namespace)
			return NewReader(o.Kube, client.List, client.Watch).selecting(labels, "")
		}
	}
	c := &Caches{
		namespaces: namespaces,
		LocalServices: newStore(&o, LocalServiceResource.GroupResource().String(), namespaces, localServices, readLocalService,
			func(ls *v1alpha1.LocalService) (string, bool) { return "", needsLabels(ls) }, nil),
		Nodes: &Nodes{newStore(&o, "nodes", []string{metav1.NamespaceAll}, nodes, trimNode, nil,
			(*Node).Same)},
		Services: newStore(&o, "services", namespaces, services, trimService, func(s *corev1.Service) (string, bool) {
			controller := plan.ControllerOf(s)
			return string(controller.UID), controller.IsLocalService()
		}, isSame),
		// EndpointSlices have the labels of their Services, and ours have these.
		EndpointSlices: newStore(&o, "endpointslices.discovery.k8s.io", namespaces,
			slices(v1alpha1.OwnerLabelKey+","+o.NodeLabelKey), trimEndpointSlice,
			func(s *discoveryv1.EndpointSlice) (string, bool) {
				return s.Labels[v1alpha1.OwnerLabelKey], IsReady(s)
			}, isSame),
		HostnameSlices: newStore(&o, "endpointslices.discovery.k8s.io", namespaces,
			slices(v1alpha1.HostnamesLabelKey), trimHostnameSlice,
			func(s *discoveryv1.EndpointSlice) (string, bool) { return plan.LocalServiceOf(s).Name, true }, isSame),
		Pods: newPods(newStore(&o, "pods", namespaces, pods,
			func(full *corev1.Pod) (*Pod, error) { return trimPod(full, o.NodeLabelKey) },
			func(p *Pod) (string, bool) { return "", p.NeedsLabel() }, (*Pod).Same)),
	}
	if o.AllPods {
		c.Pods.begin()
	}
	if o.Pods {
		c.LocalServices.OnChange(c.Pods.localServiceChanged)
	}
	return c
}

type runner interface {
	run(context.Context)
	HasSynced(namespace string) bool
}

// others returns all caches but that of LocalServices.
func (c *Caches) others() []runner {
	return []runner{c.Nodes, c.Services, c.EndpointSlices, c.HostnameSlices, c.Pods}
}

// all returns all caches. That of LocalServices comes first: whether pods are watched follows from it.
func (c *Caches) all() []runner { return append([]runner{c.LocalServices}, c.others()...) }

// Start starts to fill the caches. The returned function waits, after ctx is done, until they have stopped.
func (c *Caches) Start(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, store := range c.others() {
		running.Go(func() { store.run(ctx) })
	}
	for _, namespace := range c.namespaces {
		running.Go(func() { c.runLocalServices(ctx, namespace) })
	}
	return running.Wait
}

// runLocalServices fills the cache of the LocalServices of a namespace. One of several namespaces may become readable
// while workers run. So it waits until the other caches have synced there, by which a sync of a LocalService decides.
func (c *Caches) runLocalServices(ctx context.Context, namespace string) {
	others := func() bool { return hasSynced(c.others(), namespace) }
	if namespace == metav1.NamespaceAll || cache.WaitForCacheSync(ctx.Done(), others) {
		c.LocalServices.watched[namespace].RunWithContext(ctx)
	}
}

// WaitForSync waits until the caches are filled and all handlers have seen what is in them. It returns false if ctx is
// done first. For one of several namespaces it waits only for a while, so that a namespace without permissions does not
// hold up the others.
func (c *Caches) WaitForSync(ctx context.Context) bool {
	began := time.Now()
	isAwaited := func(namespace string) bool {
		return !hasSynced(c.all(), namespace) &&
			(namespace == metav1.NamespaceAll || time.Since(began) < namespaceTimeout)
	}
	return cache.WaitForCacheSync(ctx.Done(), func() bool {
		return c.Nodes.HasSynced(metav1.NamespaceAll) && !slices.ContainsFunc(c.namespaces, isAwaited)
	})
}

func hasSynced(caches []runner, namespace string) bool {
	return !slices.ContainsFunc(caches, func(cache runner) bool { return !cache.HasSynced(namespace) })
}

// LocalServicesOf returns the keys of the LocalServices that control a Service or may want its name: their own name is
// the same, or the part before one of its dashes. The Service may be nil, and its LocalService may be gone.
func (c *Caches) LocalServicesOf(service *corev1.Service) (keys []types.NamespacedName) {
	if service == nil {
		return nil
	}
	namespace, name := service.GetNamespace(), service.GetName()
	add := func(ls string) { keys = append(keys, types.NamespacedName{Namespace: namespace, Name: ls}) }
	if controller := plan.ControllerOf(service); controller.IsLocalService() {
		add(controller.Name)
	}
	// With mode Hostnames, a LocalService has a Service of its own name.
	if ls := c.LocalServices.Get(namespace, name); ls != nil && ls.Spec.Mode == v1alpha1.ModeHostnames {
		add(name)
	}
	for i := range name {
		if name[i] == '-' && c.LocalServices.Get(namespace, name[:i]) != nil {
			add(name[:i])
		}
	}
	return keys
}

// Owned returns the Services that a LocalService controls, by name.
func (c *Caches) Owned(ls *v1alpha1.LocalService) map[string]*corev1.Service {
	return c.Services.byName(ls.Namespace, string(ls.UID))
}

// Names returns the names of a LocalService in mode Hostnames for the nodes that it selects, without its
// EndpointSlices. While it selects none, all nodes have names, so that published names stay and follow the pods.
func (c *Caches) Names(ls *v1alpha1.LocalService, selected []string, nodeLabelKey string) *plan.Names {
	if len(selected) == 0 {
		selected = c.Nodes.Selected(&v1alpha1.LocalService{})
	}
	return plan.NamesOf(ls, nodeLabelKey, selected, c.Nodes.Labels(),
		func(name string) *corev1.Service { return c.Services.Get(ls.Namespace, name) })
}

// EndpointSlicesOf returns the EndpointSlices of a LocalService's Services for nodes that have a ready endpoint.
func (c *Caches) EndpointSlicesOf(ls types.NamespacedName) []*discoveryv1.EndpointSlice {
	return c.EndpointSlices.indexed(ls.Namespace, ls.Name)
}

// HostnameSlicesOf returns the EndpointSlices of a LocalService of mode Hostnames, according to their labels, by name.
func (c *Caches) HostnameSlicesOf(ls types.NamespacedName) map[string]*discoveryv1.EndpointSlice {
	return c.HostnameSlices.byName(ls.Namespace, ls.Name)
}

// HostnameSlicesNamed returns those with some names.
func (c *Caches) HostnameSlicesNamed(ls types.NamespacedName, names ...string) map[string]*discoveryv1.EndpointSlice {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, name := range names {
		if slice := c.HostnameSlices.Get(ls.Namespace, name); slice != nil && plan.LocalServiceOf(slice) == ls {
			byName[name] = slice
		}
	}
	return byName
}

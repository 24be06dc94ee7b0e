package diagnose

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// view is the input, indexed.
type view struct {
	Input                     // Pods are only those that the LocalService selects, by name.
	purpose      plan.Purpose // of the Services with the names: ForNode or Published
	nodeLabelKey string
	services     map[string]*corev1.Service        // by name
	endpoints    map[string][]discoveryv1.Endpoint // by Node.Name
	// ports are those that are published for ready endpoints, of each EndpointSlice, by Node.Name.
	ports map[string][][]discoveryv1.EndpointPort
	pods  map[string][]*corev1.Pod // by node; "" for those without
	// strays are pods on another node than their node label says, by its value, in mode Services.
	strays map[string][]*corev1.Pod
	// hostnames is about mode Hostnames, nil for another mode.
	hostnames *hostnames
	// stale has, by Node.Name, the addresses that are published as ready although no pod has them.
	stale map[string][]string
	// quota keeps Services from being written, nil if none does.
	quota *quota
	// tolerated has the taints that some pod tolerates, or none.
	tolerated map[corev1.Taint]bool
	// waiting is whether something waits for the controller, and its status does not say why.
	waiting bool
	// missing are the nodes that lack a label that their Services need, and which.
	missing map[string]string
	// rivals are the nodes whose name another one has, and which.
	rivals map[string]string
	// saidByStatus is whether the problem of the current name is the one that the status is about.
	saidByStatus bool
}

func newView(in Input) *view {
	v := &view{
		Input:        in,
		nodeLabelKey: nodeLabelKey(in.LocalService, in.Services),
		services:     map[string]*corev1.Service{},
		endpoints:    map[string][]discoveryv1.Endpoint{},
		ports:        map[string][][]discoveryv1.EndpointPort{},
		pods:         map[string][]*corev1.Pod{},
		strays:       map[string][]*corev1.Pod{},
		stale:        map[string][]string{},
		tolerated:    map[corev1.Taint]bool{},
		quota:        quotaOf(in.LocalService),
		missing:      missingLabels(in),
	}
	for _, service := range in.Services {
		v.services[service.Name] = service
	}
	v.rivals = plan.Rivals(in.LocalService, slices.DeleteFunc(slices.Collect(maps.Keys(in.Nodes)),
		func(node string) bool { return v.missing[node] != "" }))
	isHostnames := in.LocalService.Spec.Mode == v1alpha1.ModeHostnames
	if isHostnames {
		v.purpose = plan.Published
	}
	for _, slice := range in.EndpointSlices {
		if IsForeign(slice) {
			continue
		}
		for _, e := range slice.Endpoints {
			name := Node{Service: slice.Labels[discoveryv1.LabelServiceName]}
			if isHostnames && e.Hostname != nil {
				name.Hostname = *e.Hostname
			}
			v.endpoints[name.Name()] = append(v.endpoints[name.Name()], e)
			if plan.IsReady(&e) {
				v.ports[name.Name()] = append(v.ports[name.Name()], slice.Ports)
			}
		}
	}
	v.Pods = slices.DeleteFunc(slices.Clone(in.Pods), func(pod *corev1.Pod) bool {
		return !plan.SelectsPod(in.LocalService, labels.Set(pod.Labels))
	})
	slices.SortFunc(v.Pods, byName)
	for _, pod := range v.Pods {
		node, label := pod.Spec.NodeName, pod.Labels[v.nodeLabelKey]
		v.pods[node] = append(v.pods[node], pod)
		if !isHostnames && node != "" && label != naming.NodeLabelValue(node) && !completed(pod) &&
			pod.DeletionTimestamp == nil {
			v.strays[label] = append(v.strays[label], pod)
		}
	}
	if isHostnames {
		v.hostnames = v.newHostnames()
	}
	v.markStale()
	return v
}

// markStale marks endpoints as not ready whose address no pod has any more.
func (v *view) markStale() {
	if v.PodsUnknown || v.hostnames != nil && v.selectsOthers(plan.ServiceName(v.LocalService.Name, plan.Source, "")) {
		return
	}
	alive := map[string]bool{}
	for _, pod := range v.Pods {
		for _, ip := range pod.Status.PodIPs {
			alive[ip.IP] = alive[ip.IP] || !completed(pod)
		}
	}
	for name, endpoints := range v.endpoints {
		if v.hostnames == nil && v.selectsOthers(name) {
			continue
		}
		for i := range endpoints {
			e := &endpoints[i]
			isPod := e.TargetRef != nil && e.TargetRef.Kind == "Pod"
			if !isPod || !plan.IsReady(e) || len(e.Addresses) == 0 || alive[e.Addresses[0]] {
				continue
			}
			e.Conditions.Ready = new(false) // of the view's copy
			v.stale[name] = append(v.stale[name], e.Addresses...)
		}
		slices.Sort(v.stale[name])
	}
}

// selectsOthers reports whether a Service selects other pods than the LocalService: nothing is known about those.
func (v *view) selectsOthers(serviceName string) bool {
	service := v.services[serviceName]
	if service == nil {
		return true
	}
	selector := maps.Clone(service.Spec.Selector)
	delete(selector, v.nodeLabelKey)
	own := maps.Clone(v.LocalService.Spec.Selector)
	delete(own, v.nodeLabelKey)
	return !maps.Equal(selector, own)
}

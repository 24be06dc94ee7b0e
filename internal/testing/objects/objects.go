// Package objects builds the API objects that unit tests of several packages start from.
package objects

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Builders name what all tests of an object have in common. The rest is edited: Pod("a", "n1", Unlabelled, Ending).
// Objects are in the namespace default, with the UID uid-NAME.

// LocalService returns the headless LocalService default/demo, edited.
func LocalService(edit ...func(*v1alpha1.LocalService)) *v1alpha1.LocalService {
	meta := metaOf("demo", nil)
	meta.Generation, meta.ResourceVersion = 1, "1"
	return Edit(&v1alpha1.LocalService{ObjectMeta: meta, Spec: v1alpha1.LocalServiceSpec{
		ClusterIP: corev1.ClusterIPNone,
		Selector:  map[string]string{"app": "demo"},
		Ports:     []v1alpha1.ServicePort{{Name: "http", Port: 8080}},
	}}, edit...)
}

// Named gives a LocalService another name, and its own UID.
func Named(name string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) { ls.Name, ls.UID = name, uidOf(name) }
}

// HostnamesMode gives a LocalService the mode Hostnames.
func HostnamesMode(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }

// Selecting makes a LocalService select the nodes with labels such as disk=ssd.
func Selecting(labels ...string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = labelsOf(labels) }
}

// Reporting gives a LocalService a status for its generation, which has only the condition Ready.
func Reporting(status metav1.ConditionStatus, reason, message string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Status = v1alpha1.LocalServiceStatus{ObservedGeneration: ls.Generation, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}}}
	}
}

// Node returns a node with labels such as disk=ssd.
func Node(name string, labels ...string) *corev1.Node {
	meta := metaOf(name, labels)
	meta.Namespace = ""
	return &corev1.Node{ObjectMeta: meta}
}

// Pod returns a ready pod of LocalService demo with the right node label, edited.
func Pod(name, node string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metaOf(name, []string{"app=demo"}), Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		}}
	if node != "" {
		p.Labels[v1alpha1.DefaultNodeLabelKey] = naming.NodeLabelValue(node)
		p.Status.PodIPs = []corev1.PodIP{{IP: AddressOf(name)}}
	}
	return Edit(p, edit...)
}

// Labelled gives a pod only these labels, such as app=demo.
func Labelled(labels ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = labelsOf(labels) }
}

// Unlabelled removes the node label from a pod.
func Unlabelled(p *corev1.Pod) { delete(p.Labels, v1alpha1.DefaultNodeLabelKey) }

// NotReady makes a pod unready, with its container in some state.
func NotReady(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		p.Status.Conditions[0].Message = "containers with unready status: [app]"
		p.Status.ContainerStatuses[0].Ready = false
		p.Status.ContainerStatuses[0].State = state
	}
}

// Waiting returns the state of a container that does not run, such as CrashLoopBackOff.
func Waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// Ending makes a pod one that is being deleted.
func Ending(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }

// AddressOf returns the address of a pod, which follows from the first letter of its name: a has 10.0.0.1.
func AddressOf(pod string) string { return fmt.Sprintf("10.0.0.%d", pod[0]-'a'+1) }

// Service returns a Service of somebody else, edited.
func Service(name string, edit ...func(*corev1.Service)) *corev1.Service {
	return Edit(&corev1.Service{ObjectMeta: metaOf(name, nil)}, edit...)
}

// ForeignService returns a Service of somebody else, with a label of ours.
func ForeignService(name string) *corev1.Service {
	return Service(name, func(s *corev1.Service) { s.Labels[v1alpha1.OwnerLabelKey] = "demo" })
}

// EndpointSlice returns an EndpointSlice in which Kubernetes publishes the pods of a Service such as demo-n1, of
// LocalService demo for node n1. Endpoint explains the names of pods.
func EndpointSlice(service string, pods ...string) *discoveryv1.EndpointSlice {
	owner, node, _ := strings.Cut(service, "-")
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metaOf(service+"-x", []string{v1alpha1.OwnerLabelKey + "=" + owner,
			discoveryv1.LabelServiceName + "=" + service,
			discoveryv1.LabelManagedBy + "=endpointslice-controller.k8s.io"}),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	if node != "" {
		s.Labels[v1alpha1.DefaultNodeLabelKey] = node
	}
	for _, pod := range pods {
		s.Endpoints = append(s.Endpoints, Endpoint(pod, node))
	}
	return s
}

// SourceSlice returns an EndpointSlice of a Service that has this UID, which controls it. A pod is on the node of its
// name, unless it names another.
func SourceSlice(service string, uid types.UID, name string, pods ...string) *discoveryv1.EndpointSlice {
	s := EndpointSlice(service)
	s.Name, s.OwnerReferences = name, ControlledBy("v1", "Service", service)
	s.OwnerReferences[0].UID = uid
	for _, pod := range pods {
		s.Endpoints = append(s.Endpoints, Endpoint(pod, strings.TrimSuffix(pod, "!")))
	}
	return s
}

// Endpoint returns the endpoint of a pod such as a on a node, or b@n2 on another one. A pod a! is not ready.
func Endpoint(pod, node string) discoveryv1.Endpoint {
	pod, notReady := strings.CutSuffix(pod, "!")
	pod, other, _ := strings.Cut(pod, "@")
	return discoveryv1.Endpoint{Addresses: []string{AddressOf(pod)}, NodeName: new(cmp.Or(other, node)),
		Conditions: discoveryv1.EndpointConditions{Ready: new(!notReady), Serving: new(!notReady),
			Terminating: new(false)},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod}}
}

// ControlledBy returns the owner references of an object with a controller.
func ControlledBy(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: name, UID: uidOf(name)},
		schema.FromAPIVersionAndKind(apiVersion, kind))}
}

// Edit returns an object after some changes.
func Edit[T any](object T, edit ...func(T)) T {
	for _, e := range edit {
		e(object)
	}
	return object
}

func metaOf(name string, labels []string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", UID: uidOf(name), Labels: labelsOf(labels)}
}

func uidOf(name string) types.UID { return types.UID("uid-" + name) }

func labelsOf(labels []string) map[string]string {
	out := map[string]string{}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		out[key] = value
	}
	return out
}

// Stored returns a Service of a template, or one that was stored before, as the API server stores it: with families,
// allocated addresses and ports, and a status that somebody has written. Templates have the API server's defaults.
func Stored(service *corev1.Service) *corev1.Service {
	s := service.DeepCopy()
	s.UID = uidOf(s.Name)
	s.ResourceVersion = "7"
	spec := &s.Spec
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 {
		spec.IPFamilies = append(spec.IPFamilies, map[corev1.IPFamily]corev1.IPFamily{
			corev1.IPv4Protocol: corev1.IPv6Protocol, corev1.IPv6Protocol: corev1.IPv4Protocol}[spec.IPFamilies[0]])
	}
	switch spec.ClusterIP {
	case corev1.ClusterIPNone:
		spec.ClusterIPs = []string{corev1.ClusterIPNone}
	case "":
		spec.ClusterIP = "10.96.0.7"
		spec.ClusterIPs = []string{"10.96.0.7", "fd00::7"}[:len(spec.IPFamilies)]
	}
	for i := range spec.Ports {
		if spec.Type != corev1.ServiceTypeClusterIP && ptr.Deref(spec.AllocateLoadBalancerNodePorts, true) &&
			spec.Ports[i].NodePort == 0 {
			spec.Ports[i].NodePort = 30000 + int32(i)
		}
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		spec.HealthCheckNodePort = 31000
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}
	return s
}

// Specs are changes to LocalServices that together use every field, by what is special about them.
var Specs = map[string]func(*v1alpha1.LocalService){
	"headless":           func(*v1alpha1.LocalService) {},
	"headless, no ports": func(ls *v1alpha1.LocalService) { ls.Spec.Ports = nil },
	"cluster IP":         func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" },
	"node port": func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.Type = "", corev1.ServiceTypeNodePort
	},
	"load balancer": func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.Type = "", corev1.ServiceTypeLoadBalancer
	},
	"load balancer, everything set": func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.Type = "", corev1.ServiceTypeLoadBalancer
		ls.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		ls.Spec.LoadBalancerClass = new("example.com/lb")
		ls.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		ls.Spec.AllocateLoadBalancerNodePorts = new(false)
	},
	"ports": func(ls *v1alpha1.LocalService) {
		ls.Spec.Ports = []v1alpha1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromString("web"), AppProtocol: new("http")},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
			{Name: "dns-tcp", Port: 53, TargetPort: intstr.FromInt32(5353)},
		}
	},
	"session affinity": func(ls *v1alpha1.LocalService) {
		ls.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	},
	"session affinity, timeout": func(ls *v1alpha1.LocalService) {
		ls.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		ls.Spec.SessionAffinityConfig = &v1alpha1.SessionAffinityConfig{
			ClientIP: &v1alpha1.ClientIPConfig{TimeoutSeconds: new(int32(60))},
		}
	},
	"not ready addresses": func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true },
	"internal traffic policy": func(ls *v1alpha1.LocalService) {
		ls.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	},
	"traffic distribution": func(ls *v1alpha1.LocalService) {
		ls.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferClose)
	},
	"dual stack, preferred": func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.IPFamilyPolicy = "", new(corev1.IPFamilyPolicyPreferDualStack)
	},
	"dual stack by families": func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.IPFamilies = "", []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	},
	"IPv6": func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP, ls.Spec.IPFamilies = "", []corev1.IPFamily{corev1.IPv6Protocol}
	},
	"metadata": func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels:      map[string]string{"team": "a", "tier": "cache"},
			Annotations: map[string]string{"external-dns.example.com/ttl": "60"},
		}
	},
	"variables": func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels:      map[string]string{"team": "a-$(NODE_DNS_LABEL)"},
			Annotations: map[string]string{"external-dns.example.com/hostname": "$(NODE_NAME).example.com"},
		}
	},
	"selector": func(ls *v1alpha1.LocalService) {
		ls.Spec.Selector = map[string]string{"app": "other",
			"tier": "cache"}
	},
}

// IsScheduled reports whether the scheduler would place a pod on a node whose nodeSelector and required node affinity
// are the nodeSelector and the terms of a LocalService.
func IsScheduled(ls *v1alpha1.LocalService, node *corev1.Node) (bool, error) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: ls.Spec.NodeSelector}}
	if len(ls.Spec.NodeSelectorTerms) > 0 {
		affinity := &corev1.NodeSelector{}
		encoded, err := json.Marshal(ls.Spec.NodeSelectorTerms)
		if err == nil {
			err = json.Unmarshal(encoded, &affinity.NodeSelectorTerms)
		}
		if err != nil {
			return false, err
		}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: affinity}}
	}
	return nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
}

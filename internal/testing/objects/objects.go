// Package objects builds the API objects that unit tests of several packages start from.
package objects

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// LocalService returns the headless LocalService default/demo, edited.
func LocalService(edit ...func(*v1alpha1.LocalService)) *v1alpha1.LocalService {
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid-demo", Generation: 1,
			ResourceVersion: "1"},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "demo"},
			Ports:     []v1alpha1.ServicePort{{Name: "http", Port: 8080}},
		},
	}
	for _, e := range edit {
		e(ls)
	}
	return ls
}

// HostnamesMode gives a LocalService the mode Hostnames.
func HostnamesMode(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }

// Stored returns a Service of a template, or one that was stored before, as the API server stores it: with families,
// allocated addresses and ports, and a status that somebody has written. Templates have the API server's defaults.
func Stored(service *corev1.Service) *corev1.Service {
	s := service.DeepCopy()
	s.UID = types.UID("uid-" + s.Name)
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

// ForeignService returns a Service of somebody else, with a label of ours.
func ForeignService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default",
		UID:    types.UID("foreign-" + name),
		Labels: map[string]string{v1alpha1.OwnerLabelKey: "demo"}}}
}

// SourceSlice returns an EndpointSlice in which Kubernetes publishes the pods of a Service: one on each node, ready
// unless the name ends in !.
func SourceSlice(service string, uid types.UID, name string, nodes ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default",
			Labels: map[string]string{discoveryv1.LabelServiceName: service,
				discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
				&metav1.ObjectMeta{Name: service, UID: uid},
				corev1.SchemeGroupVersion.WithKind("Service"))}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for i, node := range nodes {
		node, notReady := strings.CutSuffix(node, "!")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: new(!notReady), Serving: new(true),
				Terminating: new(false)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "p" + node}})
	}
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

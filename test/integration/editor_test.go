package integration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// editor makes random edits.
type editor struct {
	*rapid.T
	namespace string
}

// IntN is a number below n.
func (e *editor) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(e.T, "choice") }

// pick returns one of some values.
func pick[T any](e *editor, values ...T) T { return values[e.IntN(len(values))] }

// pickPtr returns a pointer to one of some values, or nil.
func pickPtr[T any](e *editor, values ...T) *T {
	if i := e.IntN(len(values) + 1); i < len(values) {
		return &values[i]
	}
	return nil
}

// pickMap returns some of the keys with some of the values, maybe none.
func (e *editor) pickMap(keys, values []string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if e.IntN(2) == 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = pick(e, values...)
	}
	return out
}

// edit changes a few fields of a spec. Some of what comes of that makes no sense, and is for the API server to refuse.
func (e *editor) edit(spec *v1alpha1.LocalServiceSpec) {
	edits := []func(*v1alpha1.LocalServiceSpec){
		e.editType, e.editPorts, e.editPorts, e.editPolicies, e.editAffinity, e.editFamilies, e.editFamilies,
		e.editLoadBalancer, e.editNodeSelector, e.editMetadata, e.editMetadata,
		func(spec *v1alpha1.LocalServiceSpec) {
			spec.Type = pick[corev1.ServiceType](e, "", "ClusterIP", "NodePort", "LoadBalancer")
		},
		func(spec *v1alpha1.LocalServiceSpec) { spec.ClusterIP = pick(e, "", corev1.ClusterIPNone) },
		func(spec *v1alpha1.LocalServiceSpec) {
			spec.Selector = e.pickMap([]string{"app", "tier", "example.com/version"}, []string{"", "1", "web"})
		},
		func(spec *v1alpha1.LocalServiceSpec) { spec.PublishNotReadyAddresses = !spec.PublishNotReadyAddresses },
		func(spec *v1alpha1.LocalServiceSpec) {
			spec.TrafficDistribution = pickPtr(e, "PreferClose", "PreferSameZone", "PreferSameNode")
		},
	}
	for range 1 + e.IntN(3) {
		pick(e, edits...)(spec)
	}
}

// editType chooses another type, and takes away what has no meaning with it.
func (e *editor) editType(spec *v1alpha1.LocalServiceSpec) {
	spec.ClusterIP = ""
	switch spec.Type = pick[corev1.ServiceType](e, "", "", "ClusterIP", "NodePort", "LoadBalancer"); spec.Type {
	case "":
		spec.ClusterIP = corev1.ClusterIPNone
		fallthrough
	case corev1.ServiceTypeClusterIP:
		spec.ExternalTrafficPolicy = ""
		fallthrough
	case corev1.ServiceTypeNodePort:
		spec.LoadBalancerClass, spec.LoadBalancerSourceRanges, spec.AllocateLoadBalancerNodePorts = nil, nil, nil
	}
	if spec.ClusterIP == "" && len(spec.Ports) == 0 {
		spec.Ports = []v1alpha1.ServicePort{{Port: 80}}
	}
}

func (e *editor) editPorts(spec *v1alpha1.LocalServiceSpec) {
	if len(spec.Ports) > 0 && e.IntN(2) == 0 {
		port := &spec.Ports[e.IntN(len(spec.Ports))]
		*port = e.port(port.Name)
		return
	}
	spec.Ports = nil
	for i := range e.IntN(4) {
		spec.Ports = append(spec.Ports, e.port(fmt.Sprint("p", i)))
	}
	spec.Ports = rapid.Permutation(spec.Ports).Draw(e.T, "ports")
}

func (e *editor) port(name string) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{
		Name:        pick(e, name, name, name, "web", ""),
		Protocol:    pick[corev1.Protocol](e, "", "TCP", "UDP", "SCTP"),
		Port:        pick[int32](e, 53, 80, 443, 8080, 65535),
		TargetPort:  pick(e, intstr.IntOrString{}, intstr.FromInt32(8080), intstr.FromInt32(80), intstr.FromString("web")),
		AppProtocol: pickPtr(e, "http", "kubernetes.io/h2c"),
	}
}

func (e *editor) editPolicies(spec *v1alpha1.LocalServiceSpec) {
	spec.InternalTrafficPolicy = pickPtr(e, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	spec.ExternalTrafficPolicy = pick[corev1.ServiceExternalTrafficPolicy](e, "", "Cluster", "Local")
}

func (e *editor) editAffinity(spec *v1alpha1.LocalServiceSpec) {
	spec.SessionAffinity, spec.SessionAffinityConfig = pick[corev1.ServiceAffinity](e, "", "None", "ClientIP", "ClientIP"), nil
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.SessionAffinityConfig = pick(e, nil, &v1alpha1.SessionAffinityConfig{},
			&v1alpha1.SessionAffinityConfig{ClientIP: &v1alpha1.ClientIPConfig{TimeoutSeconds: pickPtr[int32](e, 1, 60, 10800, 86400)}})
	}
}

func (e *editor) editFamilies(spec *v1alpha1.LocalServiceSpec) {
	spec.IPFamilies = pick(e, nil, []corev1.IPFamily{"IPv4"}, []corev1.IPFamily{"IPv6"}, []corev1.IPFamily{"IPv4", "IPv6"}, []corev1.IPFamily{"IPv6", "IPv4"})
	spec.IPFamilyPolicy = pickPtr(e, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
}

func (e *editor) editLoadBalancer(spec *v1alpha1.LocalServiceSpec) {
	spec.LoadBalancerClass = pickPtr(e, "example.com/fast", "example.com/cheap")
	spec.LoadBalancerSourceRanges = pick(e, nil, []string{"192.0.2.0/24"}, []string{"192.0.2.0/24", "2001:db8::/32"})
	spec.AllocateLoadBalancerNodePorts = pickPtr(e, true, false)
	if e.IntN(2) == 0 {
		spec.Type, spec.ClusterIP = corev1.ServiceTypeLoadBalancer, ""
	}
}

func (e *editor) editNodeSelector(spec *v1alpha1.LocalServiceSpec) {
	spec.NodeSelector = pick(e, nil, map[string]string{framework.SceneLabel: e.namespace}, map[string]string{framework.SceneLabel: e.namespace},
		map[string]string{framework.SceneLabel: e.namespace, "disk": "ssd"}, map[string]string{"disk": "hdd"}, map[string]string{"disk": "none"})
}

func (e *editor) editMetadata(spec *v1alpha1.LocalServiceSpec) {
	keys, values := []string{"team", "example.com/tier", "empty"}, []string{"", "a", "b"}
	spec.ServiceMetadata = pick(e, nil, &v1alpha1.ServiceMetadata{},
		&v1alpha1.ServiceMetadata{Labels: e.pickMap(keys, values), Annotations: e.pickMap(keys, values)},
		&v1alpha1.ServiceMetadata{Labels: e.pickMap(keys, values)}, &v1alpha1.ServiceMetadata{Annotations: e.pickMap(keys, values)})
}

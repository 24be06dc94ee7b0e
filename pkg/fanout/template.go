package fanout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

const defaultSessionAffinitySeconds = 3 * 60 * 60

// Template is what the Services of a LocalService have in common: its spec, with the API server's defaults filled in.
type Template struct {
	owner        *v1alpha1.LocalService
	nodeLabelKey string

	spec        corev1.ServiceSpec // without the node in the selector
	labels      map[string]string  // without the node label
	annotations map[string]string  // without the node annotation
	applied     string             // value of AppliedMetadataAnnotationKey, "" for none
}

// appliedMetadata is the value of AppliedMetadataAnnotationKey.
type appliedMetadata struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// NewTemplate prepares the comparison of the Services of a LocalService. Its error says what is wrong with a spec that
// the API's own validation let pass, in words for the LocalService's author.
func NewTemplate(ls *v1alpha1.LocalService, nodeLabelKey string) (*Template, error) {
	if err := validate(ls, nodeLabelKey); err != nil {
		return nil, err
	}
	t := &Template{owner: ls, nodeLabelKey: nodeLabelKey, spec: serviceSpec(&ls.Spec)}
	t.labels = map[string]string{}
	if m := ls.Spec.ServiceMetadata; m != nil {
		maps.Copy(t.labels, m.Labels)
		t.annotations = m.Annotations
		if len(m.Labels)+len(m.Annotations) > 0 {
			applied, err := json.Marshal(appliedMetadata{
				Labels:      slices.Sorted(maps.Keys(m.Labels)),
				Annotations: slices.Sorted(maps.Keys(m.Annotations)),
			})
			if err != nil {
				return nil, fmt.Errorf("spec.serviceMetadata: %w", err)
			}
			t.applied = string(applied)
		}
	}
	t.labels[v1alpha1.OwnerLabelKey] = ls.Name
	return t, nil
}

// validate finds what the CustomResourceDefinition cannot: it does not know this controller's node label key, and it
// may be older than this controller.
func validate(ls *v1alpha1.LocalService, nodeLabelKey string) error {
	if len(ls.Name) > naming.MaxLocalServiceLength {
		return fmt.Errorf("metadata.name has %d characters, of which %d fit into the names of its Services: choose a shorter one",
			len(ls.Name), naming.MaxLocalServiceLength)
	}
	if len(ls.Spec.Selector) == 0 {
		return fmt.Errorf("spec.selector is empty: name at least one label of the pods to reach")
	}
	if _, found := ls.Spec.Selector[nodeLabelKey]; found {
		return fmt.Errorf("spec.selector names the node label %s, which the controller itself adds: remove it, and use nodeSelector to choose nodes", nodeLabelKey)
	}
	if m := ls.Spec.ServiceMetadata; m != nil {
		for _, key := range []string{nodeLabelKey, v1alpha1.OwnerLabelKey} {
			if _, found := m.Labels[key]; found {
				return fmt.Errorf("spec.serviceMetadata.labels names %s, which belongs to the controller: remove it", key)
			}
		}
	}
	return nil
}

// serviceSpec is the spec of every Service of a LocalService as the API server would store it, but for the selector,
// which lacks the node, and for what the server allocates.
func serviceSpec(in *v1alpha1.LocalServiceSpec) corev1.ServiceSpec {
	out := corev1.ServiceSpec{
		Type:                     orDefault(in.Type, corev1.ServiceTypeClusterIP),
		ClusterIP:                in.ClusterIP,
		Selector:                 in.Selector,
		SessionAffinity:          orDefault(in.SessionAffinity, corev1.ServiceAffinityNone),
		PublishNotReadyAddresses: in.PublishNotReadyAddresses,
		InternalTrafficPolicy:    orDefault(in.InternalTrafficPolicy, new(corev1.ServiceInternalTrafficPolicyCluster)),
		IPFamilies:               in.IPFamilies,
		IPFamilyPolicy:           in.IPFamilyPolicy,
		TrafficDistribution:      in.TrafficDistribution,
	}
	for i := range in.Ports {
		out.Ports = append(out.Ports, servicePort(&in.Ports[i]))
	}
	if out.SessionAffinity == corev1.ServiceAffinityClientIP {
		timeout := int32(defaultSessionAffinitySeconds)
		if c := in.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			timeout = *c.ClientIP.TimeoutSeconds
		}
		out.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
	if out.IPFamilyPolicy == nil {
		out.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		if len(in.IPFamilies) > 1 {
			out.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
	if out.Type == corev1.ServiceTypeNodePort || out.Type == corev1.ServiceTypeLoadBalancer {
		out.ExternalTrafficPolicy = orDefault(in.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if out.Type == corev1.ServiceTypeLoadBalancer {
		out.LoadBalancerClass = in.LoadBalancerClass
		out.LoadBalancerSourceRanges = in.LoadBalancerSourceRanges
		out.AllocateLoadBalancerNodePorts = orDefault(in.AllocateLoadBalancerNodePorts, new(true))
	}
	return out
}

func servicePort(in *v1alpha1.ServicePort) corev1.ServicePort {
	out := corev1.ServicePort{
		Name:        in.Name,
		Protocol:    orDefault(in.Protocol, corev1.ProtocolTCP),
		AppProtocol: in.AppProtocol,
		Port:        in.Port,
		TargetPort:  in.TargetPort,
	}
	if out.TargetPort == intstr.FromInt32(0) || out.TargetPort == intstr.FromString("") {
		out.TargetPort = intstr.FromInt32(in.Port)
	}
	return out
}

func orDefault[T comparable](value, byDefault T) T {
	var zero T
	if value == zero {
		return byDefault
	}
	return value
}

// Service is the Service that a node should have, ready to be created.
func (t *Template) Service(node string) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Name:      naming.ServiceName(t.owner.Name, node),
		Namespace: t.owner.Namespace,
	}}
	service.Spec.ClusterIP = t.spec.ClusterIP
	t.apply(service, node)
	return service
}

// apply sets in service everything that the template decides, and leaves everything else as it is.
func (t *Template) apply(service *corev1.Service, node string) {
	for i := range fields {
		if f := &fields[i]; !f.matches(t, service, node) {
			f.set(t, service, node)
		}
	}
}

// matches says whether a Service is as the template would have it. It must not read what Services of one shape differ in
// but for their node, nor may mustReplace: addresses, for example.
func (t *Template) matches(live *corev1.Service, node string) bool {
	for i := range fields {
		if !fields[i].matches(t, live, node) {
			return false
		}
	}
	return true
}

// Patch is the JSON merge patch that brings a Service in place to what its node should have. It holds only what
// differs, so that fields set by others, and fields that this program's version of the API does not know, survive; and
// the resource version, so that it never overwrites what it has not seen.
func (t *Template) Patch(service *Service, node string) ([]byte, error) {
	live := service.Full(t.nodeLabelKey)
	want := live.DeepCopy()
	t.apply(want, node)
	before, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(patch, &object); err != nil {
		return nil, err
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	metadata["resourceVersion"] = live.ResourceVersion
	return json.Marshal(object)
}

// mustReplace says whether a Service differs in a field that the API does not let change.
func (t *Template) mustReplace(live *corev1.Service) bool {
	if live.Spec.Type == corev1.ServiceTypeExternalName {
		return false // From there everything can change.
	}
	if (live.Spec.ClusterIP == corev1.ClusterIPNone) != (t.spec.ClusterIP == corev1.ClusterIPNone) {
		return true
	}
	if len(t.spec.IPFamilies) > 0 && len(live.Spec.IPFamilies) > 0 && t.spec.IPFamilies[0] != live.Spec.IPFamilies[0] {
		return true
	}
	return t.spec.Type == corev1.ServiceTypeLoadBalancer && live.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		!equalPtr(t.spec.LoadBalancerClass, live.Spec.LoadBalancerClass)
}

func equalPtr[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func samePorts(want, have []corev1.ServicePort) bool {
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		j := findPort(have, &want[i])
		if j < 0 || want[i].Name != have[j].Name || want[i].TargetPort != have[j].TargetPort || !equalPtr(want[i].AppProtocol, have[j].AppProtocol) {
			return false
		}
	}
	return true
}

// findPort finds a port by what identifies it in a Service, its number and protocol.
func findPort(ports []corev1.ServicePort, port *corev1.ServicePort) int {
	for i := range ports {
		if ports[i].Port == port.Port && ports[i].Protocol == port.Protocol {
			return i
		}
	}
	return -1
}

func sameAffinityConfig(want, have *corev1.SessionAffinityConfig) bool {
	return want == have || apiequality.Semantic.DeepEqual(want, have)
}

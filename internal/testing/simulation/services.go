package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	addressPrefix = "10.96.0."
	firstAddress  = 2
	firstNodePort = 30000
)

func createService(s *APIServer, object Object) error {
	service := object.(*corev1.Service)
	if err := createInNamespace(s, object); err != nil {
		return err
	}
	defaultService(service)
	if err := s.validateService(nil, service); err != nil {
		return err
	}
	service.Status = corev1.ServiceStatus{}
	return s.checkQuota(service)
}

func updateService(s *APIServer, subresource string, old, object Object) error {
	before, after := old.(*corev1.Service), object.(*corev1.Service)
	if subresource == "status" {
		after.Spec = *before.Spec.DeepCopy()
		return nil
	}
	after.Status = before.Status
	dropByType(before, after)
	defaultService(after)
	if after.Spec.ClusterIP == "" {
		after.Spec.ClusterIP, after.Spec.ClusterIPs = before.Spec.ClusterIP, before.Spec.ClusterIPs
	}
	keepNodePorts(before, after)
	return s.validateService(before, after)
}

// allocateForUpdate allocates what an updated Service needs and releases what it does not, as the last step: after it
// nothing is refused.
func allocateForUpdate(s *APIServer, old, object Object) error {
	before, after := old.(*corev1.Service), object.(*corev1.Service)
	if err := allocate(s, after, false); err != nil {
		return err
	}
	kept := map[int32]bool{}
	for _, port := range after.Spec.Ports {
		kept[port.NodePort] = true
	}
	for _, port := range before.Spec.Ports {
		if port.NodePort != 0 && !kept[port.NodePort] {
			delete(s.nodePorts.used, int(port.NodePort)-firstNodePort)
		}
	}
	if before.Spec.ClusterIP != after.Spec.ClusterIP {
		s.releaseAddress(before)
	}
	return nil
}

// keepNodePorts gives ports whose names an update does not change the node ports that they had.
func keepNodePorts(before, after *corev1.Service) {
	if before.Spec.Type != corev1.ServiceTypeNodePort || after.Spec.Type != corev1.ServiceTypeNodePort {
		return
	}
	had, used := map[string]int32{}, map[int32]bool{0: true}
	for _, port := range before.Spec.Ports {
		had[port.Name] = port.NodePort
	}
	for _, port := range after.Spec.Ports {
		used[port.NodePort] = true
	}
	for i := range after.Spec.Ports {
		if port := &after.Spec.Ports[i]; port.NodePort == 0 && !used[had[port.Name]] {
			port.NodePort = had[port.Name]
			used[port.NodePort] = true
		}
	}
}

// dropByType drops from an update what only the previous type has, unless the update changes it.
func dropByType(before, after *corev1.Service) {
	if before.Spec.Type == after.Spec.Type || after.Spec.Type != corev1.ServiceTypeClusterIP {
		return
	}
	for i := range after.Spec.Ports {
		if i < len(before.Spec.Ports) && after.Spec.Ports[i].NodePort == before.Spec.Ports[i].NodePort {
			after.Spec.Ports[i].NodePort = 0
		}
	}
	if after.Spec.ExternalTrafficPolicy == before.Spec.ExternalTrafficPolicy {
		after.Spec.ExternalTrafficPolicy = ""
	}
}

func defaultService(service *corev1.Service) {
	spec := &service.Spec
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	} else if spec.SessionAffinityConfig == nil {
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{
			TimeoutSeconds: new(int32(10800))}}
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		port.Protocol = cmp.Or(port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == (intstr.IntOrString{}) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	spec.InternalTrafficPolicy = cmp.Or(spec.InternalTrafficPolicy, new(corev1.ServiceInternalTrafficPolicyCluster))
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if isWithoutPods(service) { // Its endpoints are written by others, who may do so for both families.
		spec.IPFamilyPolicy = cmp.Or(spec.IPFamilyPolicy, new(corev1.IPFamilyPolicyRequireDualStack))
		if len(spec.IPFamilies) == 1 && *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
			other := map[corev1.IPFamily]corev1.IPFamily{corev1.IPv4Protocol: corev1.IPv6Protocol,
				corev1.IPv6Protocol: corev1.IPv4Protocol}
			spec.IPFamilies = append(slices.Clone(spec.IPFamilies), other[spec.IPFamilies[0]])
		}
	}
	spec.IPFamilyPolicy = cmp.Or(spec.IPFamilyPolicy, new(corev1.IPFamilyPolicySingleStack))
	if spec.Type == corev1.ServiceTypeNodePort {
		spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
}

// isWithoutPods reports whether a Service is headless and has no selector: all families are served on every cluster.
func isWithoutPods(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) == 0
}

// validateService refuses what controllers, and those who interfere with them, write in practice. before is nil for a
// creation. No history has a Service of type LoadBalancer or ExternalName: these are refused, too. Ports are not
// validated, because those of every valid LocalService are valid.
func (s *APIServer) validateService(before, service *corev1.Service) error {
	var problems field.ErrorList
	spec, path := &service.Spec, field.NewPath("spec")
	refuse := func(is bool, name string, value any, because string) {
		if is {
			problems = append(problems, field.Invalid(path.Child(name), value, because))
		}
	}
	for _, message := range utilvalidation.IsDNS1123Label(service.Name) {
		problems = append(problems, field.Invalid(field.NewPath("metadata", "name"), service.Name, message))
	}
	problems = append(problems, metav1validation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	isNodePort, isHeadless := spec.Type == corev1.ServiceTypeNodePort, spec.ClusterIP == corev1.ClusterIPNone
	refuse(!isNodePort && spec.Type != corev1.ServiceTypeClusterIP, "type", spec.Type, "unsupported")
	refuse(len(spec.Ports) == 0 && !isHeadless, "ports", "", "required")
	refuse(isHeadless && isNodePort, "clusterIPs", spec.ClusterIP, "may not be set to this for NodePort services")
	n := s.addressOf(service)
	refuse(spec.ClusterIP != "" && !isHeadless && (n < 0 || n >= s.addresses.size), "clusterIPs", spec.ClusterIP,
		"failed to allocate IP: it is not in the valid range")
	if !isWithoutPods(service) {
		refuse(slices.Contains(spec.IPFamilies, corev1.IPv6Protocol), "ipFamilies", corev1.IPv6Protocol,
			"not configured on this cluster")
		refuse(*spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack, "ipFamilyPolicy", *spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services")
	}
	refuse(spec.ExternalTrafficPolicy != "" && !isNodePort, "externalTrafficPolicy", spec.ExternalTrafficPolicy,
		"may only be set for externally-accessible services")
	if before != nil {
		const because = "may not change once set"
		refuse(before.Spec.ClusterIP != spec.ClusterIP, "clusterIPs", spec.ClusterIP, because)
		refuse(!isHeadless && before.Spec.IPFamilies[0] != spec.IPFamilies[0], "ipFamilies", spec.IPFamilies, because)
	}
	if len(problems) > 0 {
		return s.tables["services"].invalid(service.Name, problems...)
	}
	return nil
}

// allocate gives a Service its address and its node ports. A dry run does not detect that none is left.
func allocate(s *APIServer, object Object, dryRun bool) error {
	service := object.(*corev1.Service)
	spec, n := &service.Spec, s.addressOf(service)
	isNew := s.tables["services"].objects[keyOf(service)] == nil
	switch {
	case spec.ClusterIP == "" && dryRun:
		spec.ClusterIP = addressPrefix + "1"
	case spec.ClusterIP == "":
		var ok bool
		if n, ok = s.addresses.allocate(); !ok {
			return apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
		}
		spec.ClusterIP = fmt.Sprint(addressPrefix, firstAddress+n)
	case isNew && spec.ClusterIP != corev1.ClusterIPNone && s.addresses.used[n]:
		return s.tables["services"].invalid(service.Name, field.Invalid(field.NewPath("spec", "clusterIPs"),
			spec.ClusterIPs, "failed to allocate IP: provided IP is already allocated"))
	case isNew && spec.ClusterIP != corev1.ClusterIPNone && !dryRun: // as for a Service that is restored
		s.addresses.used[n] = true
	}
	spec.ClusterIPs = []string{spec.ClusterIP}
	needsPorts := spec.Type == corev1.ServiceTypeNodePort
	for i := range spec.Ports {
		if port := &spec.Ports[i]; needsPorts && port.NodePort == 0 && dryRun {
			port.NodePort = s.noNodePort() + int32(i)
		} else if needsPorts && port.NodePort == 0 {
			n, ok := s.nodePorts.allocate()
			if !ok {
				s.releaseService(service)
				return apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full"))
			}
			port.NodePort = int32(firstNodePort + n)
		} else if port.NodePort != 0 && !dryRun {
			s.nodePorts.used[int(port.NodePort)-firstNodePort] = true
		}
	}
	return nil
}

// noNodePort returns a node port that is never allocated, for dry runs.
func (s *APIServer) noNodePort() int32 { return int32(firstNodePort + s.nodePorts.size) }

func (s *APIServer) addressOf(service *corev1.Service) int {
	n := -1
	if last, ok := strings.CutPrefix(service.Spec.ClusterIP, addressPrefix); ok {
		_, _ = fmt.Sscan(last, &n)
		n -= firstAddress
	}
	return n
}

func (s *APIServer) releaseAddress(service *corev1.Service) {
	delete(s.addresses.used, s.addressOf(service))
}

func (s *APIServer) releaseService(service *corev1.Service) {
	s.releaseAddress(service)
	for _, port := range service.Spec.Ports {
		delete(s.nodePorts.used, int(port.NodePort)-firstNodePort)
	}
}

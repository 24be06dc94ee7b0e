package diagnose

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// newNode returns a node about which nothing is known. Its lists are [] in JSON, not null.
func newNode(node, hostname string) Node {
	return Node{Node: node, Hostname: hostname, Addresses: []string{}, DNSAddresses: []string{}, Ports: []Port{},
		LoadBalancer: []string{}, Pods: []Pod{}}
}

// addService adds how the name is reached, according to its Service. Addresses must be known already.
func (n *Node) addService(service *corev1.Service) {
	n.DNSAddresses = append(n.DNSAddresses, service.Spec.ClusterIPs...)
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		n.DNSAddresses = slices.Clone(n.Addresses)
	}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		n.Ports = append(n.Ports, Port{Name: port.Name, Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP),
			Port: port.Port, NodePort: port.NodePort})
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		n.LoadBalancer = append(n.LoadBalancer, cmp.Or(ingress.IP, ingress.Hostname))
	}
}

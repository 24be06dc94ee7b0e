package main

import corev1 "k8s.io/api/core/v1"

// balanced is a Service with everything that has an address.
func balanced(s *corev1.Service) *corev1.Service {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1", "fd00::1"}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}, {Port: 53, Protocol: "UDP"}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "lb.example.com"}}
	return s
}

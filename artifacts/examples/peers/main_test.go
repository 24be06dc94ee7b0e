package main

import (
	"bytes"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestRun: there are two pods on node1, one on the program's own node2, an unready one on node3, one on a node whose
// name is not a hostname, and another LocalService.
func TestRun(t *testing.T) {
	endpoint := func(node string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	slice := func(name, service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}}, Endpoints: endpoints,
			Ports: []discoveryv1.EndpointPort{{Port: new(int32(8080))}}}
	}
	client := fake.NewClientset(
		slice("a", "cache", endpoint("node1", new(true)), endpoint("node2", nil), endpoint("node3", new(false))),
		slice("b", "cache", endpoint("node1", nil), endpoint("node4.example.com", nil)),
		slice("c", "other", endpoint("node5", nil)))
	env := map[string]string{"NAMESPACE": "default", "LOCALSERVICE": "cache", "NODE": "node2"}
	var out bytes.Buffer
	err := run(t.Context(), client, func(key string) string { return env[key] }, &out)
	const want = "node1.cache.default.svc:8080\nnode4-example-com.cache.default.svc:8080\n"
	if err != nil || out.String() != want {
		t.Errorf("it prints %q, %v; want %q", out.String(), err, want)
	}
}

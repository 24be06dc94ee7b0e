package integration

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// walk is the life of a field of a LocalService: it is set, changed, and unset again.
type walk struct {
	// before makes a LocalService in which the field is not set; nil for a headless one with a port.
	before change
	set    func(spec *v1alpha1.LocalServiceSpec)
	// changed is nil if there is only one value to set.
	changed func(spec *v1alpha1.LocalServiceSpec)
	unset   func(spec *v1alpha1.LocalServiceSpec)
	// how is what becomes of the Services, by default a write in place.
	how transition
	// stays is whether the Services stay as they are when the field is unset.
	stays bool
}

// fieldWalks are the walks of all fields, by their names in the API.
func fieldWalks() map[string]walk {
	type spec = v1alpha1.LocalServiceSpec
	asNodePort, asLoadBalancer := framework.OfType(corev1.ServiceTypeNodePort), framework.OfType(corev1.ServiceTypeLoadBalancer)
	port := func(edit func(port *v1alpha1.ServicePort)) func(*spec) {
		return func(s *spec) { edit(&s.Ports[0]) }
	}
	twoPorts := func(first, second string) change {
		return func(ls *v1alpha1.LocalService) {
			ls.Spec.Ports = []v1alpha1.ServicePort{{Name: first, Port: 1}, {Name: second, Port: 2}}
		}
	}
	affinity := func(seconds *int32) func(*spec) {
		return func(s *spec) {
			s.SessionAffinityConfig = nil
			if seconds != nil {
				s.SessionAffinityConfig = &v1alpha1.SessionAffinityConfig{ClientIP: &v1alpha1.ClientIPConfig{TimeoutSeconds: seconds}}
			}
		}
	}
	return map[string]walk{
		"type": {before: framework.WithClusterIP, set: func(s *spec) { s.Type = "NodePort" },
			changed: func(s *spec) { s.Type = "LoadBalancer" }, unset: func(s *spec) { s.Type = "" }},
		"clusterIP": {before: framework.WithClusterIP, set: func(s *spec) { s.ClusterIP = "None" }, unset: func(s *spec) { s.ClusterIP = "" }, how: replaced},
		"ports": {before: func(ls *v1alpha1.LocalService) { ls.Spec.Ports = nil },
			set:     func(s *spec) { s.Ports = []v1alpha1.ServicePort{{Port: 80}} },
			changed: func(s *spec) { s.Ports = []v1alpha1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 81}} },
			unset:   func(s *spec) { s.Ports = nil }},
		"ports.name": {before: func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Name = "" },
			set:     port(func(p *v1alpha1.ServicePort) { p.Name = "http" }),
			changed: port(func(p *v1alpha1.ServicePort) { p.Name = "web" }),
			unset:   port(func(p *v1alpha1.ServicePort) { p.Name = "" })},
		"ports.protocol": {set: port(func(p *v1alpha1.ServicePort) { p.Protocol = "UDP" }),
			changed: port(func(p *v1alpha1.ServicePort) { p.Protocol = "SCTP" }),
			unset:   port(func(p *v1alpha1.ServicePort) { p.Protocol = "" })},
		"ports.appProtocol": {set: port(func(p *v1alpha1.ServicePort) { p.AppProtocol = new("http") }),
			changed: port(func(p *v1alpha1.ServicePort) { p.AppProtocol = new("kubernetes.io/h2c") }),
			unset:   port(func(p *v1alpha1.ServicePort) { p.AppProtocol = nil })},
		// It cannot be unset.
		"ports.port": {set: port(func(p *v1alpha1.ServicePort) { p.Port = 81 }), unset: port(func(p *v1alpha1.ServicePort) { p.Port = 80 })},
		"ports.targetPort": {before: func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].TargetPort = intstr.IntOrString{} },
			set:     port(func(p *v1alpha1.ServicePort) { p.TargetPort = intstr.FromInt32(8080) }),
			changed: port(func(p *v1alpha1.ServicePort) { p.TargetPort = intstr.FromString("web") }),
			unset:   port(func(p *v1alpha1.ServicePort) { p.TargetPort = intstr.IntOrString{} })},
		"ports in another order": {before: twoPorts("a", "b"), how: nothing,
			set:   func(s *spec) { slices.Reverse(s.Ports) },
			unset: func(s *spec) { slices.Reverse(s.Ports) }},
		"ports with their names exchanged": {before: twoPorts("a", "b"),
			set:   func(s *spec) { s.Ports[0].Name, s.Ports[1].Name = "b", "a" },
			unset: func(s *spec) { s.Ports[0].Name, s.Ports[1].Name = "a", "b" }},
		// Nor can it, but for some of its pairs.
		"selector": {set: func(s *spec) { s.Selector["tier"] = "web" }, changed: func(s *spec) { s.Selector["tier"] = "" },
			unset: func(s *spec) { delete(s.Selector, "tier") }},
		"sessionAffinity": {set: func(s *spec) { s.SessionAffinity = "ClientIP" }, unset: func(s *spec) { s.SessionAffinity = "" }},
		"sessionAffinityConfig": {before: func(ls *v1alpha1.LocalService) { ls.Spec.SessionAffinity = "ClientIP" },
			set: affinity(new(int32(60))), changed: affinity(new(int32(61))), unset: affinity(nil)},
		"publishNotReadyAddresses": {set: func(s *spec) { s.PublishNotReadyAddresses = true }, unset: func(s *spec) { s.PublishNotReadyAddresses = false }},
		"internalTrafficPolicy": {before: framework.WithClusterIP, set: func(s *spec) { s.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) },
			unset: func(s *spec) { s.InternalTrafficPolicy = nil }},
		"externalTrafficPolicy": {before: asNodePort, set: func(s *spec) { s.ExternalTrafficPolicy = "Local" }, unset: func(s *spec) { s.ExternalTrafficPolicy = "" }},
		"externalTrafficPolicy with a port for health checks": {before: asLoadBalancer,
			set: func(s *spec) { s.ExternalTrafficPolicy = "Local" }, unset: func(s *spec) { s.ExternalTrafficPolicy = "" }},
		"ipFamilyPolicy": {before: framework.WithClusterIP, set: func(s *spec) { s.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack) },
			unset: func(s *spec) { s.IPFamilyPolicy = nil }},
		// The cluster has one family; TestImmutableTransitions has two.
		"ipFamilies": {before: framework.WithClusterIP, set: func(s *spec) { s.IPFamilies = []corev1.IPFamily{"IPv4"} }, unset: func(s *spec) { s.IPFamilies = nil }, how: nothing},
		"trafficDistribution": {set: func(s *spec) { s.TrafficDistribution = new("PreferSameNode") },
			changed: func(s *spec) { s.TrafficDistribution = new("PreferSameZone") }, unset: func(s *spec) { s.TrafficDistribution = nil }},
		"loadBalancerClass": {before: asLoadBalancer, set: func(s *spec) { s.LoadBalancerClass = new("example.com/fast") },
			changed: func(s *spec) { s.LoadBalancerClass = new("example.com/cheap") }, unset: func(s *spec) { s.LoadBalancerClass = nil }, how: replaced, stays: true},
		"loadBalancerSourceRanges": {before: asLoadBalancer, set: func(s *spec) { s.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
			changed: func(s *spec) { s.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"} },
			unset:   func(s *spec) { s.LoadBalancerSourceRanges = nil }},
		"allocateLoadBalancerNodePorts": {before: asLoadBalancer, set: func(s *spec) { s.AllocateLoadBalancerNodePorts = new(false) },
			unset: func(s *spec) { s.AllocateLoadBalancerNodePorts = nil }},
		"serviceMetadata": {
			set: func(s *spec) {
				s.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2"}}
			},
			changed: func(s *spec) {
				s.ServiceMetadata = &v1alpha1.ServiceMetadata{Labels: map[string]string{"a": "3"}, Annotations: map[string]string{"c": "4"}}
			},
			unset: func(s *spec) { s.ServiceMetadata = nil }},
	}
}

// TestEveryFieldSetChangedUnset takes every field of the API through its life. Each step reaches each Service by one
// write, or by one replacement, and in the end the Services are what they were before.
func TestEveryFieldSetChangedUnset(t *testing.T) {
	t.Parallel()
	walks := fieldWalks()
	for _, name := range apiFields(reflect.TypeFor[v1alpha1.LocalServiceSpec]()) {
		if _, found := walks[name]; !found && name != "nodeSelector" { // That has TestEveryFieldNodeSelector.
			t.Errorf("spec.%s has no walk", name)
		}
	}
	for name, w := range walks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "walk")
			f := s.newFence()
			nodes := s.AddNodes("a", "b")
			var before []change
			if w.before != nil {
				before = append(before, w.before)
			}
			original := s.MustOwn(s.CreateReady("demo", before...), len(nodes))
			f.passServices()
			how := w.how
			if how == "" {
				how = inPlace
			}
			for _, step := range []struct {
				name string
				do   func(*v1alpha1.LocalServiceSpec)
			}{{"set", w.set}, {"changed", w.changed}, {"unset", w.unset}} {
				if step.do == nil {
					continue
				}
				if w.stays && step.name == "unset" {
					s.transit("demo", f, step.name, len(nodes), nothing, func(ls *v1alpha1.LocalService) { step.do(&ls.Spec) })
					return
				}
				s.transit("demo", f, step.name, len(nodes), how, func(ls *v1alpha1.LocalService) { step.do(&ls.Spec) })
				if how == nothing {
					continue
				}
				ls := s.WaitReady("demo")
				for name, service := range s.MustOwn(ls, len(nodes)) {
					s.checkFollows(ls, service, strings.TrimPrefix(name, "demo-"))
				}
			}
			now := s.MustOwn(s.WaitReady("demo"), len(nodes))
			for _, name := range slices.Sorted(maps.Keys(original)) {
				was, is := withoutAllocated(original[name]), withoutAllocated(now[name])
				for _, err := range []error{
					framework.Equal("spec of "+name, is.Spec, was.Spec),
					framework.Equal("labels of "+name, is.Labels, was.Labels),
					framework.Equal("annotations of "+name, is.Annotations, was.Annotations),
				} {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// apiFields are the names of the fields of a type of the API, and of those of the ports.
func apiFields(of reflect.Type) []string {
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		if name == "ports" {
			for _, field := range apiFields(reflect.TypeFor[v1alpha1.ServicePort]()) {
				if field != "nodePort" { // It cannot be set.
					names = append(names, "ports."+field)
				}
			}
		}
	}
	return names
}

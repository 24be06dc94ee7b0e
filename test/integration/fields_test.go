package integration

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// walk is the life of a field of a LocalService: it is set, changed if there is more than one value, and unset again.
type walk struct {
	// before says how a LocalService in which the field is not set differs from a headless one with a port.
	before string
	how    transition
	values []string
}

const (
	onePort       = "ports: [{port: 80}]"
	nodePorts     = "clusterIP: null, type: NodePort"
	loadBalancers = "clusterIP: null, type: LoadBalancer"
)

// fieldWalks has the walks of all fields, by their names in the API.
var fieldWalks = map[string]walk{
	"type":      {addressed, inPlace, []string{"type: NodePort", "type: LoadBalancer"}},
	"clusterIP": {addressed, refused, []string{"clusterIP: None"}},
	"ports":     {"ports: null", inPlace, []string{onePort, "ports: [{name: a, port: 80}, {name: b, port: 81}]"}},
	// Existing Services keep their node ports.
	"ports of a NodePort": {nodePorts, inPlace, []string{"ports: [{name: a, port: 80}, {name: b, port: 81}]"}},
	"ports in another order": {"ports: [{name: a, port: 1}, {name: b, port: 2}]", nothing,
		[]string{"ports: [{name: b, port: 2}, {name: a, port: 1}]"}},
	"ports with their names exchanged": {"ports: [{name: a, port: 1}, {name: b, port: 2}]", inPlace,
		[]string{"ports: [{name: b, port: 1}, {name: a, port: 2}]"}},
	"ports.name": {onePort, inPlace, []string{"ports: [{name: http, port: 80}]", "ports: [{name: web, port: 80}]"}},
	"ports.protocol": {onePort, inPlace,
		[]string{"ports: [{port: 80, protocol: UDP}]", "ports: [{port: 80, protocol: SCTP}]"}},
	"ports.appProtocol": {onePort, inPlace,
		[]string{"ports: [{port: 80, appProtocol: http}]", "ports: [{port: 80, appProtocol: kubernetes.io/h2c}]"}},
	"ports.port": {onePort, inPlace, []string{"ports: [{port: 81}]"}},
	"ports.targetPort": {onePort, inPlace,
		[]string{"ports: [{port: 80, targetPort: 8080}]", "ports: [{port: 80, targetPort: web}]"}},
	"selector":        {"", inPlace, []string{"selector: {app: demo, tier: web}", `selector: {app: demo, tier: ""}`}},
	"sessionAffinity": {"", inPlace, []string{"sessionAffinity: ClientIP"}},
	"sessionAffinityConfig": {"sessionAffinity: ClientIP", inPlace, []string{
		"sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}",
		"sessionAffinityConfig: {clientIP: {timeoutSeconds: 61}}",
	}},
	"publishNotReadyAddresses": {"", inPlace, []string{"publishNotReadyAddresses: true"}},
	"internalTrafficPolicy":    {addressed, inPlace, []string{"internalTrafficPolicy: Local"}},
	"externalTrafficPolicy":    {nodePorts, inPlace, []string{"externalTrafficPolicy: Local"}},
	"externalTrafficPolicy with a port for health checks": {loadBalancers, inPlace,
		[]string{"externalTrafficPolicy: Local"}},
	"ipFamilyPolicy": {addressed, inPlace, []string{"ipFamilyPolicy: PreferDualStack"}},
	// The cluster has one family; TestImmutableTransitions has two.
	"ipFamilies": {addressed, nothing, []string{"ipFamilies: [IPv4]"}},
	"trafficDistribution": {"", inPlace,
		[]string{"trafficDistribution: PreferSameNode", "trafficDistribution: PreferSameZone"}},
	"loadBalancerClass": {loadBalancers, refused,
		[]string{"loadBalancerClass: example.com/fast", "loadBalancerClass: example.com/cheap"}},
	"loadBalancerSourceRanges": {loadBalancers, inPlace,
		[]string{"loadBalancerSourceRanges: [192.0.2.0/24]", `loadBalancerSourceRanges: ["2001:db8::/32"]`}},
	"allocateLoadBalancerNodePorts": {loadBalancers, inPlace, []string{"allocateLoadBalancerNodePorts: false"}},
	"serviceMetadata": {"", inPlace, []string{`serviceMetadata: {labels: {a: "1"}, annotations: {b: "2"}}`,
		`serviceMetadata: {labels: {a: "3"}, annotations: {c: "4"}}`}},
}

// TestEveryFieldSetChangedUnset takes every field of the API through its life. Each step reaches each Service by one
// write, unless it is refused, and in the end the Services are as before.
func TestEveryFieldSetChangedUnset(t *testing.T) {
	t.Parallel()
	for _, name := range apiFields(reflect.TypeFor[v1alpha1.LocalServiceSpec]()) {
		// These select nodes, and decide which Services exist.
		isOther := slices.Contains([]string{"nodeSelector", "nodeSelectorTerms", "mode", "groupBy"}, name)
		if _, found := fieldWalks[name]; !found && !isOther {
			t.Errorf("spec.%s has no walk", name)
		}
	}
	for name, w := range fieldWalks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "walk")
			f := s.newFence()
			nodes := s.AddNodes("a", "b")
			before := s.MustOwn(s.CreateReady("demo", spec(headless, w.before)), len(nodes))
			f.passServices()
			for _, value := range w.values {
				s.transit(f, w.how, headless, w.before, value)
			}
			if w.how != refused {
				s.transit(f, w.how, headless, w.before, "")
			}
			for name, now := range s.MustOwn(s.WaitReady("demo"), len(nodes)) {
				if err := sameButAllocated(now, before[name]); err != nil {
					t.Error(err)
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

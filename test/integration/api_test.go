package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

var localServiceResource = v1alpha1.SchemeGroupVersion.WithResource("localservices")

// fromYAML is a LocalService as users write it, for the nodes of the scene.
func (s *scene) fromYAML(name, spec string) *unstructured.Unstructured {
	s.T.Helper()
	object := map[string]any{}
	s.Must(yaml.Unmarshal([]byte(spec), &object))
	object["nodeSelector"] = map[string]any{framework.SceneLabel: s.Namespace}
	ls := &unstructured.Unstructured{Object: map[string]any{"spec": object}}
	ls.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	ls.SetKind(v1alpha1.Kind)
	ls.SetName(name)
	return ls
}

// createFromYAML makes a LocalService as kubectl does: fields that the API does not have are errors.
func (s *scene) createFromYAML(name, spec string, dryRun ...string) error {
	s.T.Helper()
	_, err := s.Dynamic.Resource(localServiceResource).Namespace(s.Namespace).Create(s.Ctx(), s.fromYAML(name, spec),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
	return err
}

// wantRefusal fails unless an error tells what is wrong, and what to do about it.
func (s *scene) wantRefusal(err error, sentences ...string) {
	s.T.Helper()
	if err == nil {
		s.T.Fatalf("the API server accepted it; want a refusal with %q", sentences)
	}
	for _, sentence := range sentences {
		if !strings.Contains(err.Error(), sentence) {
			s.T.Errorf("the API server's answer lacks %q: %v", sentence, err)
		}
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "bad")
	tests := []struct {
		name, spec string
		object     string // name of the LocalService, if it is not "demo"
		says       []string
	}{
		{name: "empty spec", spec: `{}`,
			says: []string{"spec.selector: Required value"}},
		{name: "selector missing", spec: `{clusterIP: None}`,
			says: []string{"spec.selector: Required value"}},
		{name: "selector empty", spec: `{clusterIP: None, selector: {}}`,
			says: []string{"selector is empty: name at least one label of the pods to reach, for example app: demo"}},
		{name: "selector names the node label", spec: `{clusterIP: None, selector: {app: demo, vm/rack: node1}}`,
			says: []string{"selector names the node label vm/rack", "remove it, and use nodeSelector to choose nodes"}},
		{name: "no ports and a cluster IP", spec: `{selector: {app: demo}}`,
			says: []string{"ports is empty", "add one, or set clusterIP: None"}},
		{name: "no ports and an empty clusterIP", spec: `{clusterIP: "", ports: [], selector: {app: demo}}`,
			says: []string{"ports is empty", "add one, or set clusterIP: None"}},
		{name: "no ports and type NodePort", spec: `{type: NodePort, selector: {app: demo}}`,
			says: []string{"ports is empty"}},
		{name: "port names twice", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: a, port: 1}, {name: a, port: 2}]}`,
			says: []string{"two ports have the same name; give each its own"}},
		{name: "port numbers twice", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: a, port: 1}, {name: b, port: 1}]}`,
			says: []string{"two ports have the same number and protocol; remove one or change its port"}},
		{name: "port numbers twice, one with the default protocol", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: a, port: 1}, {name: b, port: 1, protocol: TCP}]}`,
			says: []string{"two ports have the same number and protocol; remove one or change its port"}},
		{name: "second port without a name", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: a, port: 1}, {port: 2}]}`,
			says: []string{"every port needs a name when there is more than one; add name to each"}},
		{name: "first port with an empty name", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: "", port: 1}, {name: b, port: 2}]}`,
			says: []string{"every port needs a name when there is more than one; add name to each"}},
		{name: "port missing", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: a}]}`,
			says: []string{"spec.ports[0].port: Required value"}},
		{name: "port 0", spec: `{clusterIP: None, selector: {app: demo}, ports: [{port: 0}]}`,
			says: []string{"spec.ports[0].port", "greater than or equal to 1"}},
		{name: "port 65536", spec: `{clusterIP: None, selector: {app: demo}, ports: [{port: 65536}]}`,
			says: []string{"spec.ports[0].port", "less than or equal to 65535"}},
		{name: "port name in upper case", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: HTTP, port: 1}]}`,
			says: []string{"spec.ports[0].name", "should match"}},
		{name: "port name of 64 characters", spec: `{clusterIP: None, selector: {app: demo}, ports: [{name: ` + strings.Repeat("a", 64) + `, port: 1}]}`,
			says: []string{"spec.ports[0].name", "may not be more than 63"}},
		{name: "protocol unknown", spec: `{clusterIP: None, selector: {app: demo}, ports: [{port: 1, protocol: ICMP}]}`,
			says: []string{"spec.ports[0].protocol", `supported values: "TCP", "UDP", "SCTP"`}},
		{name: "nodePort fixed", spec: `{type: NodePort, selector: {app: demo}, ports: [{port: 1, nodePort: 30001}]}`,
			says: []string{"nodePort cannot be fixed", "remove it to have one allocated"}},
		{name: "clusterIP fixed", spec: `{clusterIP: 10.96.3.4, selector: {app: demo}, ports: [{port: 1}]}`,
			says: []string{"clusterIP cannot be a fixed address", "use None (headless), or leave it out to have one allocated"}},
		{name: "headless NodePort", spec: `{type: NodePort, clusterIP: None, selector: {app: demo}, ports: [{port: 1}]}`,
			says: []string{"clusterIP: None (headless) works only with type: ClusterIP", "remove clusterIP or change type"}},
		{name: "headless LoadBalancer", spec: `{type: LoadBalancer, clusterIP: None, selector: {app: demo}, ports: [{port: 1}]}`,
			says: []string{"clusterIP: None (headless) works only with type: ClusterIP", "remove clusterIP or change type"}},
		{name: "name of 53 characters", object: strings.Repeat("a", 53), spec: `{clusterIP: None, selector: {app: demo}}`,
			says: []string{"metadata.name is too long", "choose a name of at most 52 characters"}},
		{name: "name of 253 characters", object: strings.Repeat("a", 253), spec: `{clusterIP: None, selector: {app: demo}}`,
			says: []string{"metadata.name is too long", "choose a name of at most 52 characters"}},
		{name: "name with dots", object: "demo.v1", spec: `{clusterIP: None, selector: {app: demo}}`,
			says: []string{"it must start with a letter and hold only lower case letters, digits and '-', without dots"}},
		{name: "name that begins with a digit", object: "1demo", spec: `{clusterIP: None, selector: {app: demo}}`,
			says: []string{"it must start with a letter"}},
		{name: "type ExternalName", spec: `{type: ExternalName, selector: {app: demo}}`,
			says: []string{"spec.type", `supported values: "ClusterIP", "NodePort", "LoadBalancer"`}},
		{name: "externalName", spec: `{clusterIP: None, selector: {app: demo}, externalName: example.com}`,
			says: []string{`unknown field "spec.externalName"`}},
		{name: "externalTrafficPolicy of a ClusterIP", spec: `{selector: {app: demo}, ports: [{port: 1}], externalTrafficPolicy: Local}`,
			says: []string{"externalTrafficPolicy has a meaning only with type: NodePort or LoadBalancer; remove it or change type"}},
		{name: "externalTrafficPolicy unknown", spec: `{type: NodePort, selector: {app: demo}, ports: [{port: 1}], externalTrafficPolicy: local}`,
			says: []string{"spec.externalTrafficPolicy", `supported values: "Cluster", "Local"`}},
		{name: "internalTrafficPolicy unknown", spec: `{selector: {app: demo}, ports: [{port: 1}], internalTrafficPolicy: Node}`,
			says: []string{"spec.internalTrafficPolicy", `supported values: "Cluster", "Local"`}},
		{name: "loadBalancerClass of a NodePort", spec: `{type: NodePort, selector: {app: demo}, ports: [{port: 1}], loadBalancerClass: example.com/fast}`,
			says: []string{"loadBalancerClass has a meaning only with type: LoadBalancer; remove it or change type"}},
		{name: "loadBalancerClass of no form", spec: `{type: LoadBalancer, selector: {app: demo}, ports: [{port: 1}], loadBalancerClass: "not/a/class"}`,
			says: []string{"loadBalancerClass must be a name of at most 63 letters"}},
		{name: "loadBalancerSourceRanges of a ClusterIP", spec: `{selector: {app: demo}, ports: [{port: 1}], loadBalancerSourceRanges: [192.0.2.0/24]}`,
			says: []string{"loadBalancerSourceRanges has a meaning only with type: LoadBalancer; remove it or change type"}},
		{name: "loadBalancerSourceRanges that is an address", spec: `{type: LoadBalancer, selector: {app: demo}, ports: [{port: 1}], loadBalancerSourceRanges: [192.0.2.7]}`,
			says: []string{"loadBalancerSourceRanges must be networks in CIDR form", "for example 192.0.2.0/24"}},
		{name: "loadBalancerSourceRanges with bits beyond the mask", spec: `{type: LoadBalancer, selector: {app: demo}, ports: [{port: 1}], loadBalancerSourceRanges: [10.0.0.1/8]}`,
			says: []string{"with no bits set beyond the mask"}},
		{name: "allocateLoadBalancerNodePorts of a NodePort", spec: `{type: NodePort, selector: {app: demo}, ports: [{port: 1}], allocateLoadBalancerNodePorts: false}`,
			says: []string{"allocateLoadBalancerNodePorts has a meaning only with type: LoadBalancer; remove it or change type"}},
		{name: "sessionAffinity unknown", spec: `{selector: {app: demo}, ports: [{port: 1}], sessionAffinity: Cookie}`,
			says: []string{"spec.sessionAffinity", `supported values: "ClientIP", "None"`}},
		{name: "sessionAffinityConfig without sessionAffinity", spec: `{selector: {app: demo}, ports: [{port: 1}], sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}}`,
			says: []string{"sessionAffinityConfig has a meaning only with sessionAffinity: ClientIP; set that or remove sessionAffinityConfig"}},
		{name: "sessionAffinityConfig with sessionAffinity None", spec: `{selector: {app: demo}, ports: [{port: 1}], sessionAffinity: None, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}}`,
			says: []string{"sessionAffinityConfig has a meaning only with sessionAffinity: ClientIP; set that or remove sessionAffinityConfig"}},
		{name: "timeoutSeconds 0", spec: `{selector: {app: demo}, ports: [{port: 1}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}`,
			says: []string{"timeoutSeconds", "greater than or equal to 1"}},
		{name: "timeoutSeconds 86401", spec: `{selector: {app: demo}, ports: [{port: 1}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}`,
			says: []string{"timeoutSeconds", "less than or equal to 86400"}},
		{name: "ipFamilies twice the same", spec: `{clusterIP: None, selector: {app: demo}, ipFamilies: [IPv4, IPv4]}`,
			says: []string{"ipFamilies names the same family twice; name each once"}},
		{name: "ipFamilies unknown", spec: `{clusterIP: None, selector: {app: demo}, ipFamilies: [ipv4]}`,
			says: []string{"spec.ipFamilies[0]", `supported values: "IPv4", "IPv6"`}},
		{name: "three ipFamilies", spec: `{clusterIP: None, selector: {app: demo}, ipFamilies: [IPv4, IPv6, IPv4]}`,
			says: []string{"spec.ipFamilies", "must have at most 2 items"}},
		{name: "two ipFamilies with SingleStack", spec: `{clusterIP: None, selector: {app: demo}, ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack}`,
			says: []string{"two ipFamilies contradict ipFamilyPolicy: SingleStack", "name one family, or use PreferDualStack or RequireDualStack"}},
		{name: "ipFamilyPolicy unknown", spec: `{clusterIP: None, selector: {app: demo}, ipFamilyPolicy: DualStack}`,
			says: []string{"spec.ipFamilyPolicy", `supported values: "SingleStack", "PreferDualStack", "RequireDualStack"`}},
		{name: "trafficDistribution unknown", spec: `{clusterIP: None, selector: {app: demo}, trafficDistribution: Far}`,
			says: []string{"spec.trafficDistribution", `supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
		{name: "label owner", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {labels: {owner: me}}}`,
			says: []string{"the labels owner and vm/rack on the Services belong to the controller; remove them from serviceMetadata.labels"}},
		{name: "node label", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {labels: {vm/rack: node1}}}`,
			says: []string{"the labels owner and vm/rack on the Services belong to the controller; remove them from serviceMetadata.labels"}},
		{name: "the controller's annotations", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {annotations: {localservice.dev/node: node1}}}`,
			says: []string{"annotations under localservice.dev/ belong to the controller; remove them from serviceMetadata.annotations"}},
		{name: "kubectl's annotation", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}}`,
			says: []string{"the annotation kubectl.kubernetes.io/last-applied-configuration belongs to kubectl"}},
		{name: "contradicting annotations", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {annotations: {service.kubernetes.io/topology-mode: Auto, service.kubernetes.io/topology-aware-hints: Disabled}}}`,
			says: []string{"contradict each other; remove the second one"}},
		{name: "annotation with an empty name", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {annotations: {a/: b}}}`,
			says: []string{"serviceMetadata.annotations has a key that no annotation can have"}},
		{name: "selector value of two words", spec: `{clusterIP: None, selector: {app: a b}}`,
			says: []string{"selector has a value that no label can have"}},
		{name: "targetPort 4294967296", spec: `{clusterIP: None, selector: {app: demo}, ports: [{port: 1, targetPort: 4294967296}]}`,
			says: []string{"spec.ports[0].targetPort", "less than or equal to 65535"}},
		{name: "targetPort \"8080\"", spec: `{clusterIP: None, selector: {app: demo}, ports: [{port: 1, targetPort: "8080"}]}`,
			says: []string{"spec.ports[0].targetPort", "should match"}},
		{name: "unknown field", spec: `{clusterIP: None, selector: {app: demo}, nodeselector: {disk: ssd}}`,
			says: []string{`unknown field "spec.nodeselector"`}},
		{name: "unknown field of a port", spec: `{clusterIP: None, selector: {app: demo}, ports: [{port: 1, hostPort: 1}]}`,
			says: []string{`unknown field "spec.ports[0].hostPort"`}},
		{name: "externalIPs", spec: `{clusterIP: None, selector: {app: demo}, externalIPs: [192.0.2.1]}`,
			says: []string{`unknown field "spec.externalIPs"`}},
		{name: "loadBalancerIP", spec: `{type: LoadBalancer, selector: {app: demo}, ports: [{port: 1}], loadBalancerIP: 192.0.2.1}`,
			says: []string{`unknown field "spec.loadBalancerIP"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			object := test.object
			if object == "" {
				object = "demo"
			}
			s.wantRefusal(s.createFromYAML(object, test.spec, metav1.DryRunAll), test.says...)
		})
	}
}

func TestBadChangesAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "badchange")
	s.AddNodes("a")
	const headless = `{clusterIP: None, selector: {app: demo}, ports: [{name: http, port: 80}]}`
	const withAddress = `{selector: {app: demo}, ports: [{name: http, port: 80}]}`
	tests := []struct {
		name, spec, patch string
		says              []string
	}{
		{"headless to NodePort", headless, `{spec: {type: NodePort}}`,
			[]string{"clusterIP: None (headless) works only with type: ClusterIP"}},
		{"headless to LoadBalancer", headless, `{spec: {type: LoadBalancer}}`,
			[]string{"clusterIP: None (headless) works only with type: ClusterIP"}},
		{"to a fixed address", headless, `{spec: {clusterIP: 10.96.3.4}}`,
			[]string{"clusterIP cannot be a fixed address"}},
		{"to an address without ports", headless, `{spec: {clusterIP: null, ports: null}}`,
			[]string{"ports is empty"}},
		{"to no ports", withAddress, `{spec: {ports: []}}`,
			[]string{"ports is empty"}},
		{"to no selector", headless, `{spec: {selector: null}}`,
			[]string{"spec.selector: Required value"}},
		{"to an empty selector", headless, `{spec: {selector: {app: null}}}`,
			[]string{"selector is empty"}},
		{"to a selector with the node label", headless, `{spec: {selector: {vm/rack: node1}}}`,
			[]string{"selector names the node label vm/rack"}},
		{"from LoadBalancer with a class to NodePort", `{type: LoadBalancer, loadBalancerClass: example.com/fast, selector: {app: demo}, ports: [{port: 80}]}`, `{spec: {type: NodePort}}`,
			[]string{"loadBalancerClass has a meaning only with type: LoadBalancer"}},
		{"from NodePort with a policy to ClusterIP", `{type: NodePort, externalTrafficPolicy: Local, selector: {app: demo}, ports: [{port: 80}]}`, `{spec: {type: ClusterIP}}`,
			[]string{"externalTrafficPolicy has a meaning only with type: NodePort or LoadBalancer"}},
		{"to a fixed node port", `{type: NodePort, selector: {app: demo}, ports: [{port: 80}]}`, `{spec: {ports: [{port: 80, nodePort: 30001}]}}`,
			[]string{"nodePort cannot be fixed"}},
		{"sessionAffinity away from its configuration", `{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}, selector: {app: demo}, ports: [{port: 80}]}`, `{spec: {sessionAffinity: None}}`,
			[]string{"sessionAffinityConfig has a meaning only with sessionAffinity: ClientIP"}},
		{"unknown field", headless, `{spec: {clusterIp: None}}`,
			[]string{`unknown field "spec.clusterIp"`}},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			name := fmt.Sprintf("demo%d", i)
			s.Must(s.createFromYAML(name, test.spec))
			_, err := s.LocalServiceClient().Patch(s.Ctx(), name, types.MergePatchType, s.jsonOf(test.patch), metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
			s.wantRefusal(err, test.says...)
		})
	}
}

// jsonOf is a value that is written in YAML.
func (s *scene) jsonOf(text string) []byte {
	s.T.Helper()
	var value any
	s.Must(yaml.Unmarshal([]byte(text), &value))
	b, err := json.Marshal(value)
	s.Must(err)
	return b
}

func TestGoodSpecsBecomeServices(t *testing.T) {
	t.Parallel()
	name52 := strings.Repeat("a", 52)
	tests := []struct {
		name, spec string
		object     string // name of the LocalService, if it is not "demo"
	}{
		{name: "headless", spec: `{clusterIP: None, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "headless without ports", spec: `{clusterIP: None, selector: {app: demo}}`},
		{name: "ClusterIP", spec: `{type: ClusterIP, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "ClusterIP by default", spec: `{ports: [{port: 80}], selector: {app: demo}}`},
		{name: "empty clusterIP", spec: `{clusterIP: "", ports: [{port: 80}], selector: {app: demo}}`},
		{name: "NodePort", spec: `{type: NodePort, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "NodePort with everything", spec: `{type: NodePort, externalTrafficPolicy: Local, internalTrafficPolicy: Local, ports: [{name: a, port: 80, nodePort: 0}], selector: {app: demo}}`},
		{name: "LoadBalancer", spec: `{type: LoadBalancer, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "LoadBalancer with everything", spec: `{type: LoadBalancer, externalTrafficPolicy: Local, internalTrafficPolicy: Cluster, loadBalancerClass: example.com/fast, loadBalancerSourceRanges: [192.0.2.0/24, "2001:db8::/32"], allocateLoadBalancerNodePorts: false, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "the same port number with several protocols", spec: `{clusterIP: None, ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP}, {name: s, port: 53, protocol: SCTP}], selector: {app: dns}}`},
		{name: "the same address with two protocols", spec: `{ports: [{name: t, port: 53, targetPort: dns-tcp}, {name: u, port: 53, targetPort: dns, protocol: UDP}], selector: {app: dns}}`},
		{name: "every field of a port", spec: `{ports: [{name: web, port: 80, protocol: TCP, targetPort: 8080, appProtocol: kubernetes.io/h2c}, {name: metrics, port: 9090, targetPort: metrics, appProtocol: http}], selector: {app: demo}}`},
		{name: "sessionAffinity", spec: `{sessionAffinity: ClientIP, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "sessionAffinity without timeout", spec: `{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {}}, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "sessionAffinity with the shortest timeout", spec: `{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "sessionAffinity with the longest timeout", spec: `{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "sessionAffinity None", spec: `{sessionAffinity: None, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "not ready addresses", spec: `{clusterIP: None, publishNotReadyAddresses: true, selector: {app: demo}}`},
		{name: "headless with everything", spec: `{type: ClusterIP, clusterIP: None, sessionAffinity: None, publishNotReadyAddresses: true, internalTrafficPolicy: Cluster, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, trafficDistribution: PreferSameNode, ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP, appProtocol: http}], selector: {app: demo, tier: web}, serviceMetadata: {labels: {team: infra}, annotations: {example.com/note: "hello, world"}}}`},
		{name: "IPv4", spec: `{clusterIP: None, ipFamilies: [IPv4], selector: {app: demo}}`},
		{name: "PreferDualStack", spec: `{ipFamilyPolicy: PreferDualStack, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "headless PreferDualStack", spec: `{clusterIP: None, ipFamilyPolicy: PreferDualStack, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "trafficDistribution PreferClose", spec: `{trafficDistribution: PreferClose, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "trafficDistribution PreferSameZone", spec: `{trafficDistribution: PreferSameZone, ports: [{port: 80}], selector: {app: demo}}`},
		{name: "several labels to select by", spec: `{clusterIP: None, selector: {app.kubernetes.io/name: demo, app.kubernetes.io/instance: "1", empty: ""}}`},
		{name: "metadata", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {labels: {app.kubernetes.io/part-of: shop, empty: ""}, annotations: {external-dns.alpha.kubernetes.io/hostname: demo.example.com}}}`},
		{name: "empty metadata", spec: `{clusterIP: None, selector: {app: demo}, serviceMetadata: {}}`},
		{name: "name of 52 characters", object: name52, spec: `{clusterIP: None, selector: {app: demo}}`},
		{name: "name of one character", object: "a", spec: `{clusterIP: None, selector: {app: demo}}`},
		{name: "name that ends with a digit", object: "demo-v1-2", spec: `{clusterIP: None, selector: {app: demo}}`},
		{name: "100 ports", spec: `{clusterIP: None, selector: {app: demo}, ports: [` + manyPorts(100) + `]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "good")
			node := s.AddNodes("a")[0]
			name := test.object
			if name == "" {
				name = "demo"
			}
			s.Must(s.createFromYAML(name, test.spec))
			ready := s.WaitReady(name)
			for _, service := range s.MustOwn(ready, 1) {
				s.checkFollows(ready, service, node)
			}
			s.WantWrites("services", "1 create services 201")
		})
	}
}

func manyPorts(n int) string {
	ports := make([]string, n)
	for i := range ports {
		ports[i] = fmt.Sprintf("{name: p%d, port: %d}", i, 1000+i)
	}
	return strings.Join(ports, ", ")
}

// TestStatusIsApart tests that the status has its own door, which the spec does not go through, and that what somebody
// else writes there lasts no longer than until the controller looks at the LocalService again.
func TestStatusIsApart(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "status")
	s.CreateReady("demo")
	var updated *v1alpha1.LocalService
	s.Must(framework.RetryConflicts(func() error {
		ls, err := s.LocalServiceClient().Get(s.Ctx(), "demo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ls.Spec.PublishNotReadyAddresses = true
		ls.Status.Nodes = 7
		updated, err = s.LocalServiceClient().UpdateStatus(s.Ctx(), ls, metav1.UpdateOptions{})
		return err
	}))
	if updated.Spec.PublishNotReadyAddresses || updated.Status.Nodes != 7 {
		t.Errorf("a write of the status changed the spec, or not the status: %+v", updated)
	}
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
	s.WaitLocalService("demo", "the status tells the truth again", func(ls *v1alpha1.LocalService) error {
		return framework.Equal("status.nodes", ls.Status.Nodes, 0)
	})
}

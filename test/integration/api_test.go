package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

var localServiceResource = v1alpha1.SchemeGroupVersion.WithResource("localservices")

// createFromYAML makes a LocalService as kubectl does: fields that the API does not have are errors. It is for the
// nodes of the scene and pods with the label app=demo, unless the fields say otherwise.
func (s *scene) createFromYAML(name, fields string, dryRun ...string) error {
	spec := fieldsOf(fmt.Sprintf("selector: {app: demo}, nodeSelector: {%s: %s}", framework.SceneLabel, s.Namespace),
		fields)
	ls := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	ls.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	ls.SetKind(v1alpha1.Kind)
	ls.SetName(name)
	_, err := s.Dynamic.Resource(localServiceResource).Namespace(s.Namespace).Create(s.Ctx(), ls,
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
	return err
}

// wantRefusal fails unless an error says what is wrong, and what to do about it, in words and without regular
// expressions.
func wantRefusal(t *testing.T, err error, sentences ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("the API server accepted it; want a refusal with %q", sentences)
	}
	// Kubernetes says so itself, behind what it has found.
	ours, _, _ := strings.Cut(err.Error(), "<nil>: Invalid value: null: some validation rules were not checked")
	for _, riddle := range []string{"should match", "<nil>"} {
		if strings.Contains(ours, riddle) {
			t.Errorf("the API server's answer has %q: %v", riddle, err)
		}
	}
	for _, sentence := range sentences {
		if !strings.Contains(err.Error(), sentence) {
			t.Errorf("the API server's answer lacks %q: %v", sentence, err)
		}
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "bad")
	const ownLabels = "the labels owner, vm/rack and localservice.dev/hostnames on the Services are reserved for the " +
		"controller; remove them from serviceMetadata.labels"
	const quoted = "targetPort is the number of a port, without quotes, or a name"
	for _, test := range [][]string{ // the fields of a spec, and what the API server says
		{"selector: null", "spec.selector: Required value"},
		{"selector: {}", "selector is empty: name at least one label of the pods to reach, for example app: demo"},
		{"clusterIP: None, selector: {app: demo, vm/rack: node1}",
			"selector names vm/rack", "remove it, and use nodeSelector to choose nodes"},
		{"", "ports is empty", "add one, or set clusterIP: None"},
		{`clusterIP: "", ports: []`, "ports is empty", "add one, or set clusterIP: None"},
		{"clusterIP: None, ports: [{name: a, port: 1}, {name: a, port: 2}]",
			"two ports have the same name; give each its own"},
		{"clusterIP: None, ports: [{name: a, port: 1}, {name: b, port: 1, protocol: TCP}]",
			"two ports have the same number and protocol; remove one or change its port"},
		{"clusterIP: None, ports: [{name: a, port: 1}, {port: 2}]",
			"every port needs a name when there is more than one; add name to each"},
		{`clusterIP: None, ports: [{name: "", port: 1}, {name: b, port: 2}]`,
			"every port needs a name when there is more than one; add name to each"},
		{"clusterIP: None, ports: [{name: a}]", "spec.ports[0].port: Required value"},
		{"clusterIP: None, ports: [{port: 0}]", "spec.ports[0].port", "greater than or equal to 1"},
		{"clusterIP: None, ports: [{port: 65536}]", "spec.ports[0].port", "less than or equal to 65535"},
		{"clusterIP: None, ports: [{name: HTTP, port: 1}]", "spec.ports[0].name",
			"the name of a port has only lower case letters, digits and '-', and begins and ends with a letter or " +
				"digit"},
		{"clusterIP: None, ports: [{name: " + strings.Repeat("a", 64) + ", port: 1}]",
			"spec.ports[0].name", "may not be more than 63"},
		{"clusterIP: None, ports: [{port: 1, protocol: ICMP}]",
			"spec.ports[0].protocol", `supported values: "TCP", "UDP", "SCTP"`},
		{"type: NodePort, ports: [{port: 1, nodePort: 30001}]",
			"nodePort cannot be fixed", "remove it to have one allocated",
			"one Service with type: NodePort and externalTrafficPolicy: Local"},
		{"clusterIP: 10.96.3.4, ports: [{port: 1}]",
			"clusterIP cannot be a fixed address", "use None (headless), or leave it out to have one allocated"},
		{"type: NodePort, clusterIP: None, ports: [{port: 1}]",
			"clusterIP: None (headless) works only with type: ClusterIP", "remove clusterIP or change type"},
		{"clusterIP: None, mode: Names", "spec.mode", `supported values: "Services", "Hostnames"`},
		{"clusterIP: None, groupBy: zone", "groupBy works only with mode: Hostnames; set that or remove groupBy"},
		{"mode: Services, clusterIP: None, groupBy: zone", "groupBy works only with mode: Hostnames"},
		{"mode: Hostnames, groupBy: a/b/c", "spec.groupBy", "groupBy must be the key of a node label"},
		{"mode: Hostnames, ports: [{port: 1}], type: NodePort",
			"one headless Service, which has no node port and no load balancer; remove type, or use mode: Services"},
		{"mode: Hostnames, sessionAffinity: ClientIP", "sessionAffinity has no effect with mode: Hostnames",
			"remove it, or use mode: Services"},
		{"mode: Hostnames, internalTrafficPolicy: Local", "internalTrafficPolicy has no effect with mode: Hostnames",
			"remove it, or use mode: Services"},
		{"type: ExternalName", "spec.type", `supported values: "ClusterIP", "NodePort", "LoadBalancer"`},
		{"clusterIP: None, externalName: example.com", `unknown field "spec.externalName"`},
		{"ports: [{port: 1}], externalTrafficPolicy: Local",
			"externalTrafficPolicy has a meaning only with type: NodePort or LoadBalancer; remove it or change type"},
		{"type: NodePort, ports: [{port: 1}], externalTrafficPolicy: local",
			"spec.externalTrafficPolicy", `supported values: "Cluster", "Local"`},
		{"ports: [{port: 1}], internalTrafficPolicy: Node",
			"spec.internalTrafficPolicy", `supported values: "Cluster", "Local"`},
		{"type: NodePort, ports: [{port: 1}], loadBalancerClass: example.com/fast",
			"loadBalancerClass has a meaning only with type: LoadBalancer; remove it or change type"},
		{`type: LoadBalancer, ports: [{port: 1}], loadBalancerClass: "not/a/class"`,
			"loadBalancerClass must be a name of at most 63 letters"},
		{"ports: [{port: 1}], loadBalancerSourceRanges: [192.0.2.0/24]",
			"loadBalancerSourceRanges has a meaning only with type: LoadBalancer; remove it or change type"},
		{"type: LoadBalancer, ports: [{port: 1}], loadBalancerSourceRanges: [192.0.2.7]",
			"loadBalancerSourceRanges must be networks in CIDR form", "for example 192.0.2.0/24"},
		{"type: LoadBalancer, ports: [{port: 1}], loadBalancerSourceRanges: [10.0.0.1/8]",
			"with no bits set beyond the mask"},
		{"type: NodePort, ports: [{port: 1}], allocateLoadBalancerNodePorts: false",
			"allocateLoadBalancerNodePorts has a meaning only with type: LoadBalancer; remove it or change type"},
		{"ports: [{port: 1}], sessionAffinity: Cookie", "spec.sessionAffinity", `supported values: "ClientIP", "None"`},
		{"ports: [{port: 1}], sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}",
			"sessionAffinityConfig has a meaning only with sessionAffinity: ClientIP; set that or remove " +
				"sessionAffinityConfig"},
		{"ports: [{port: 1}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}",
			"timeoutSeconds", "greater than or equal to 1"},
		{"ports: [{port: 1}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}",
			"timeoutSeconds", "less than or equal to 86400"},
		{"clusterIP: None, ipFamilies: [IPv4, IPv4]", "ipFamilies names the same family twice; name each once"},
		{"clusterIP: None, ipFamilies: [ipv4]", "spec.ipFamilies[0]", `supported values: "IPv4", "IPv6"`},
		{"clusterIP: None, ipFamilies: [IPv4, IPv6, IPv4]", "spec.ipFamilies", "must have at most 2 items"},
		{"clusterIP: None, ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack",
			"two ipFamilies contradict ipFamilyPolicy: SingleStack",
			"name one family, or use PreferDualStack or RequireDualStack"},
		{"clusterIP: None, ipFamilyPolicy: DualStack",
			"spec.ipFamilyPolicy", `supported values: "SingleStack", "PreferDualStack", "RequireDualStack"`},
		{"clusterIP: None, trafficDistribution: Far",
			"spec.trafficDistribution", `supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`},
		{"clusterIP: None, serviceMetadata: {labels: {owner: me}}", ownLabels},
		{"clusterIP: None, serviceMetadata: {labels: {vm/rack: node1}}", ownLabels},
		{"clusterIP: None, serviceMetadata: {labels: {localservice.dev/hostnames: source}}", ownLabels},
		{"clusterIP: None, serviceMetadata: {annotations: {localservice.dev/node: node1}}",
			"annotations under localservice.dev/ belong to the controller", "remove them from serviceMetadata"},
		{`clusterIP: None, serviceMetadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}}`,
			"the annotation kubectl.kubernetes.io/last-applied-configuration belongs to kubectl"},
		{"clusterIP: None, serviceMetadata: {annotations: {service.kubernetes.io/topology-mode: Auto, " +
			"service.kubernetes.io/topology-aware-hints: Disabled}}", "contradict each other; remove the second one"},
		{annotation(`"${NODE_NAME}"`), "which nothing replaces; the variables are written $(NODE_NAME)"},
		{annotation(`"$(NODE_LABEL[zone])"`), "that is not complete; it is written $(NODE_LABEL['key'])"},
		{annotation(`"$(NODE_LABEL['zone)"`), "that is not complete; it is written $(NODE_LABEL['key'])"},
		{annotation("$(NODE_ZONE)"), "with $( that begins no variable"},
		{label("$(NODE_LABEL[zone])"), "begins no variable"},
		{label("$(NODE_LABEL['zone)"), "begins no variable"},
		{label("$(NODE_LABEL['zone'])-$(NODE)"), "begins no variable"},
		{annotation(`"{{ .Values.node }}"`), "which nothing replaces; the variables are written $(NODE_NAME)"},
		{ports(101), "spec.ports", "leave ports out"},
		{ports(257), "spec.ports", "must have at most 256 items"},
		{"clusterIP: None, serviceMetadata: {annotations: {a/: b}}",
			"serviceMetadata.annotations has a key that no annotation can have"},
		{"clusterIP: None, serviceMetadata: {labels: {Example.com/a: b}}",
			"serviceMetadata.labels has a key that no label can have"},
		{annotation(strings.Repeat("a", 50_000)), "serviceMetadata.annotations are too large"},
		{annotation(strings.Repeat("a", 4_988) + v1alpha1.VariableNodeName),
			"serviceMetadata.annotations with variables are too large"},
		{annotation(strings.Repeat(v1alpha1.VariableNodeName, 17)),
			"serviceMetadata.annotations with variables are too large"},
		{"clusterIP: None, selector: {app: a b}", "selector has a value that no label can have"},
		{"clusterIP: None, ports: [{port: 1, targetPort: 4294967296}]",
			"spec.ports[0].targetPort", "less than or equal to 65535"},
		{`clusterIP: None, ports: [{port: 1, targetPort: "8080"}]`, "spec.ports[0].targetPort", quoted},
		{"clusterIP: None, ports: [{port: 1, targetPort: HTTP}]", quoted},
		{"clusterIP: None, ports: [{port: 1, targetPort: -a}]", quoted},
		{"clusterIP: None, ports: [{port: 1, targetPort: a-}]", quoted},
		{"clusterIP: None, ports: [{port: 1, targetPort: a--b}]", quoted},
		{"clusterIP: None, ports: [{port: 1, targetPort: a_b}]", quoted},
		{"clusterIP: None, ports: [{port: 1, targetPort: a234567890123456}]", "spec.ports[0].targetPort: Too long"},
		{terms("[]"), "spec.nodeSelectorTerms", "should have at least 1 items"},
		{terms("[{}]"), "spec.nodeSelectorTerms[0]", "matches no node, as on a pod; add one, or remove the term"},
		{expression("{key: a, operator: In}"), "the operators In and NotIn need values; add one"},
		{expression("{key: a, operator: Exists, values: [b]}"), "look at the key only; remove values"},
		{expression("{key: a, operator: Gt, values: [b]}"), "Gt and Lt compare whole numbers"},
		{expression(`{key: a, operator: Lt, values: ["1", "2"]}`), "values must have one, in quotes"},
		{expression("{key: a, operator: Equals, values: [b]}"), `supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`},
		{expression("{key: a b, operator: Exists}"), "no label can have this key"},
		{expression("{key: a, operator: In, values: [a b]}"), "no label can have one of these values"},
		{expression("{operator: Exists}"), "matchExpressions[0].key: Required value"},
		{terms("[{matchFields: [{key: spec.unschedulable, operator: In, values: [a]}]}]"),
			`supported values: "metadata.name"`},
		{terms("[{matchFields: [{key: metadata.name, operator: Exists}]}]"), `supported values: "In", "NotIn"`},
		{terms("[{matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}]"), "must have at most 1 item"},
		{terms("[{matchFields: [{key: metadata.name, operator: NotIn, values: [Not A Name]}]}]"),
			"no node can have this name"},
		{expressions(17, ""), "they may have 16 expressions with 64 values together"},
		{expressions(13, "a, b, c, d, e"), "they may have 16 expressions with 64 values together"},
		{label(strings.Repeat("$(NODE_NAME)", 16) + "\", b: \"$(NODE_NAME)"), "they may have 16 together"},
		{"clusterIP: None, nodeselector: {disk: ssd}", `unknown field "spec.nodeselector"`},
		{"clusterIP: None, ports: [{port: 1, hostPort: 1}]", `unknown field "spec.ports[0].hostPort"`},
		{"clusterIP: None, externalIPs: [192.0.2.1]", `unknown field "spec.externalIPs"`},
		{"type: LoadBalancer, ports: [{port: 1}], loadBalancerIP: 192.0.2.1", `unknown field "spec.loadBalancerIP"`},
	} {
		t.Run(test[0][:min(len(test[0]), 80)], func(t *testing.T) {
			wantRefusal(t, s.in(t).createFromYAML("demo", test[0], metav1.DryRunAll), test[1:]...)
		})
	}
	for name, says := range map[string]string{
		strings.Repeat("a", 53): "choose a name of at most 52 characters",
		"demo.v1":               "it must start with a letter and hold only lower case letters, digits and '-'",
		"1demo":                 "it must start with a letter",
		"demo-v1-2":             "",
		strings.Repeat("a", 52): "",
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.in(t).createFromYAML(name, headless, metav1.DryRunAll); says != "" {
				wantRefusal(t, err, "metadata.name: Invalid", says)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// annotation returns the fields of a spec with an annotation that has one character, and a value.
func annotation(value string) string {
	return "clusterIP: None, serviceMetadata: {annotations: {a: " + value + "}}"
}

// expressions returns the fields of a spec with n expressions in terms, each with values or, for "", none.
func expressions(n int, values string) string {
	e := "{key: a, operator: Exists}"
	if values != "" {
		e = "{key: a, operator: In, values: [" + values + "]}"
	}
	var list []string
	for ; n > 0; n -= 8 {
		list = append(list, "{matchExpressions: ["+strings.Repeat(e+", ", min(n, 8))+"]}")
	}
	return terms("[" + strings.Join(list, ", ") + "]")
}

// label returns the fields of a spec with a label that has a value.
func label(value string) string {
	return `clusterIP: None, serviceMetadata: {labels: {a: "` + value + `"}}`
}

// terms returns the fields of a spec with nodeSelectorTerms, and expression those with one expression.
func terms(list string) string { return "clusterIP: None, nodeSelectorTerms: " + list }

func expression(e string) string { return terms("[{matchExpressions: [" + e + "]}]") }

// ports returns the fields of a spec with many ports.
func ports(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("{name: a-port-with-a-name-of-the-longest-kind-that-there-may-be-%03d, port: "+
			"%d}", i,
			i+1))
	}
	return "clusterIP: None, ports: [" + strings.Join(list, ", ") + "]"
}

// TestKeysWithoutValue tests that a key without a value has an empty one, as in a Service: without it, a selector would
// select more.
func TestKeysWithoutValue(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "keys")
	s.Must(s.createFromYAML("demo", "clusterIP: None, selector: {app: demo, tier: }, nodeSelector: {disk: }, "+
		"serviceMetadata: {labels: {a: }, annotations: {b: }}"))
	ls, err := s.LocalServiceClient().Get(s.Ctx(), "demo", metav1.GetOptions{})
	s.Must(err)
	got := ls.Spec
	for what, m := range map[string]map[string]string{"tier": got.Selector, "disk": got.NodeSelector,
		"a": got.ServiceMetadata.Labels, "b": got.ServiceMetadata.Annotations} {
		if value, exists := m[what]; !exists || value != "" {
			t.Errorf("%s is %q in %v", what, value, m)
		}
	}
}

// TestGoodSpecs tests specs that combine fields, or take them to their limits, and those that only mode Hostnames
// accepts: the API server accepts them, and their Services. Annotations may be large, but not those with variables:
// they cost each node as much as others cost for all nodes together. Each field by itself has a walk in
// TestEveryFieldSetChangedUnset.
func TestGoodSpecs(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "good")
	const sticky = "ports: [{port: 80}], sessionAffinity: ClientIP, sessionAffinityConfig: "
	for i, fields := range []string{
		"clusterIP: None",
		"clusterIP: None, serviceMetadata: {}",
		`clusterIP: None, selector: {app.kubernetes.io/name: demo, empty: ""}`,
		`clusterIP: None, serviceMetadata: {labels: {app.kubernetes.io/part-of: a, empty: ""}}`,
		`type: ClusterIP, clusterIP: "", sessionAffinity: None, ports: [{port: 80}]`,
		"type: NodePort, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 0}]",
		everyField,
		sticky + "{clientIP: {}}",
		sticky + "{clientIP: {timeoutSeconds: 1}}",
		sticky + "{clientIP: {timeoutSeconds: 86400}}",
		"ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP}, {name: s, port: 53, protocol: SCTP, " +
			"targetPort: dns}]",
		"mode: Hostnames",
		"mode: Hostnames, ports: []",
		"mode: Hostnames, groupBy: topology.kubernetes.io/zone",
		"mode: Hostnames, type: ClusterIP, clusterIP: None, sessionAffinity: None, internalTrafficPolicy: Cluster",
		"mode: Hostnames, ipFamilyPolicy: PreferDualStack, publishNotReadyAddresses: true",
		"mode: Hostnames, trafficDistribution: PreferClose",
		ports(100),
		expressions(16, ""),
		expressions(16, "a, b, c, d"),
		expression("{key: a, operator: In, values: [" + strings.Repeat(strings.Repeat("a", 63)+",", 32) + "]}"),
		annotation(strings.Repeat("a", 49_999)),
		annotation(strings.Repeat("a", 4_987) + v1alpha1.VariableNodeName),
		annotation(strings.Repeat(v1alpha1.VariableNodeName, 16)),
		annotation("\"$$(NODE_LABEL[ $(NODE_LABEL['topology.kubernetes.io/zone'])\""),
		label("in-$(NODE_LABEL['" + strings.Repeat("a.", 60) + "com/zone']).$(NODE_DNS_LABEL)"),
	} {
		ls := &v1alpha1.LocalService{}
		of := fieldsOf("selector: {app: demo}", fields)
		answer, err := s.ask(with(full(t, s.Namespace)[0], []string{"spec"}, of), "")
		if err == nil {
			err = json.Unmarshal(answer, ls)
		}
		if err == nil {
			err = s.tryService(ls, i)
		}
		if err != nil {
			t.Errorf("%.200s: %v", fields, err)
		}
	}
}

// TestModeIsFixed tests that the mode cannot be changed. To write out the default is no change.
func TestModeIsFixed(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "mode")
	for name, fields := range map[string]string{"services": "clusterIP: None", "names": "mode: Hostnames"} {
		s.Must(s.createFromYAML(name, fields))
		for patch, isRefused := range map[string]bool{`"Services"`: name == "names", `"Hostnames"`: name == "services",
			"null": name == "names"} {
			_, err := s.LocalServiceClient().Patch(s.Ctx(), name, types.MergePatchType,
				[]byte(`{"spec": {"mode": `+patch+`}}`), metav1.PatchOptions{})
			if !isRefused {
				s.Must(err)
				continue
			}
			wantRefusal(t, err, "spec.mode", "mode cannot be changed: create a second LocalService with the other "+
				"mode, move the clients, and delete this one")
		}
	}
}

// everyField sets every field that a Service with a load balancer can have.
const everyField = "type: LoadBalancer, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{name: web, port: " +
	"80, appProtocol: kubernetes.io/h2c}, {name: dns, port: 53, protocol: UDP}], selector: {app: demo, tier: web}, " +
	"publishNotReadyAddresses: true, trafficDistribution: PreferSameNode, sessionAffinity: ClientIP, " +
	"sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, internalTrafficPolicy: Local, externalTrafficPolicy: " +
	"Local, allocateLoadBalancerNodePorts: false, " +
	`loadBalancerClass: example.com/fast, loadBalancerSourceRanges: [192.0.2.0/24, "2001:db8::/32"], ` +
	`serviceMetadata: {labels: {team: infra}, annotations: {note: "hello, world"}}`

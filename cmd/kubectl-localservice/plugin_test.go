package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

func TestOutput(t *testing.T) {
	const summary = "LocalService default/demo: nodes 5, answering 1/5, status WritingServices.\n"
	const taken = "the name is taken by a Service without an owner (demo-n5)"
	const act = "if it is for the pods on node n5, have it adopted: kubectl patch service -n default demo-n5 " +
		`--type=merge -p '{"metadata":{"labels":{"owner":"demo"}},"spec":{"selector":{"vm/rack":"n5"}}}'; if nothing uses it, ` +
		"delete it; otherwise create this LocalService under another name"
	const log = "see kubectl logs -n default c"
	newFixture(t).wantOutput(t, summary, map[string]string{
		"nodes lsvc/demo -o wide --cluster-domain example.org": `
NODE   SERVICE   DNS-NAME                          ENDPOINTS   PODS     ADDRESSES           REASON
n1     demo-n1   demo-n1.default.svc.example.org   2/2         a,b      10.0.0.1,10.0.0.2   
n2     demo-n2   demo-n2.default.svc.example.org   0/1         c        <none>              exit code 1 (c: 5 restarts); ` + log + `
n3     demo-n3   demo-n3.default.svc.example.org   0/0         <none>   <none>              no matching pod here (app=demo)
n4     demo-n4   demo-n4.default.svc.example.org   0/0         <none>   <none>              no Service; Services are being written
n5     demo-n5   demo-n5.default.svc.example.org   0/0         <none>   <none>              ` + taken + "; " + act + `
`})
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	newFixture(t, namespace("default"), namespace("ops")).wantOutput(t, "n2: "+log+"\nn5: "+act+"\n"+summary, map[string]string{
		"nodes demo": `
NODE   SERVICE   ENDPOINTS   REASON
n1     demo-n1   2/2         
n2     demo-n2   0/1         exit code 1 (c: 5 restarts)
n3     demo-n3   0/0         no matching pod here (app=demo)
n4     demo-n4   0/0         no Service; Services are being written
n5     demo-n5   0/0         the name is taken by a Service without an owner (demo-n5)
`,
		"nodes demo --problems": `
NODE   SERVICE   ENDPOINTS   REASON
n2     demo-n2   0/1         exit code 1 (c: 5 restarts)
n3     demo-n3   0/0         no matching pod here (app=demo)
n4     demo-n4   0/0         no Service; Services are being written
n5     demo-n5   0/0         the name is taken by a Service without an owner (demo-n5)
`,
		"nodes demo --problems -o jsonpath={.items[*].node}": "\nn2 n3 n4 n5",
		"nodes demo -o name": `
service/demo-n1
service/demo-n2
service/demo-n3
`,
		"nodes demo -o jsonpath={range.items[?(@.endpoints.ready==0)]}{.node}:{.reason}/{end}": `
n2:PodsNotReady/n3:NoPods/n4:ServiceMissing/n5:NameConflict/`,
		"__complete nodes d":      "\ndemo\n:4\n",
		"__complete nodes demo ":  "\n:4\n",
		"__complete url d":        "\ndemo\n:4\n",
		"__complete url demo n":   "\nn1\nn2\nn3\n:4\n",
		"__complete url demo n1 ": "\n:4\n",
		"__complete url nix n":    "\n:4\n",
		"__complete nodes -n ":    "\ndefault\nops\n:4\n",
		"__complete view d":       "\ndemo\n:4\n",
		"__complete view demo ":   "\n:4\n",
	})
}

// TestFormats: the Tab key offers the formats that a command has.
func TestFormats(t *testing.T) {
	for args, want := range map[string]bool{"nodes -o ": true, "create x -o ": false} {
		_, stdout, _ := newFixture(t).run(t, strings.Split("__complete "+args, " ")...)
		if !strings.Contains(stdout, "jsonpath\n") || strings.Contains(stdout, "wide\n") != want {
			t.Errorf("%s: %s", args, stdout)
		}
	}
}

// TestGolden holds the fields of -o json and -o yaml: scripts read them, so none may change its name or meaning.
func TestGolden(t *testing.T) {
	zones := newHostnamesFixture(t, "zone")
	for file, f := range map[string]*fixture{"nodes.json": newFixture(t), "hostnames.json": zones} {
		want, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(want)
		if err != nil {
			t.Fatal(err)
		}
		f.want(t, string(want), "", "nodes", "demo", "-o", "json")
		f.want(t, string(asYAML), "", "nodes", "demo", "-o", "yaml")
	}
}

// TestRequests: however many nodes there are, there is one list of each resource.
func TestRequests(t *testing.T) {
	f := newFixture(t)
	f.run(t, "nodes", "demo")
	got := map[string]int{}
	for _, action := range slices.Concat(f.kube.Actions(), f.localServices.Actions()) {
		got[action.GetVerb()+" "+action.GetResource().Resource]++
	}
	want := map[string]int{"get localservices": 1, "list nodes": 1, "list services": 1, "list endpointslices": 1,
		"list leases": 1,
		"list pods":   2, "list deployments": 1, "list statefulsets": 1, "list daemonsets": 1, "list events": 5}
	if !maps.Equal(got, want) {
		t.Errorf("requests: %v; want %v", got, want)
	}
}

func TestNodesWithoutPermission(t *testing.T) {
	for want, f := range map[string]*fixture{"n1: n2: n3: ": newFixture(t), "n1:n1 n2:n2 ": newHostnamesFixture(t, ""),
		"eu-a:eu-a ": newHostnamesFixture(t, "zone")} {
		fail(&f.kube.Fake, "nodes", forbidden)
		const warning = "warning: you may not list nodes, so that some may be missing here\n"
		f.want(t, want, warning, "nodes", "demo", "-o", "jsonpath={range.items[*]}{.node}:{.hostname} {end}")
	}
}

func TestNoNodes(t *testing.T) {
	f := newFixture(t)
	f.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.NodeList{}, nil
	})
	const wantErr = "LocalService default/demo: nodes 0, answering 0/0, status WritingServices: Services are being " +
		"written\n"
	f.want(t, "", wantErr, "nodes", "demo")
}

func TestURL(t *testing.T) {
	type ports = []v1alpha1.ServicePort
	http := v1alpha1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}
	https := v1alpha1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromString("web")}
	for _, c := range map[string]struct {
		clusterIP string
		ports     ports
		port      string
		want      string
	}{
		"first port":           {"", ports{http, https}, "", "http://s-n1.default:80"},
		"by name":              {"", ports{http, https}, "https", "https://s-n1.default:443"},
		"by number":            {"", ports{http, https}, "443", "https://s-n1.default:443"},
		"headless":             {"None", ports{http}, "", "http://s-n1.default:8080"},
		"headless, any port":   {"None", nil, "5060", "http://s-n1.default:5060"},
		"headless, no target":  {"None", ports{{Port: 7}}, "", "http://s-n1.default:7"},
		"headless, with names": {"None", ports{http, https}, "https", "https://s-n1.default:8443"},
	} {
		ls := localService("s", c.clusterIP, c.ports...)
		f := newFixture(t, service("s-n1", "n1"), slice("s-n1", "a"))
		f.localServices = fake.NewClientset(ls)
		f.want(t, c.want+"\n", "", "url", "s", "n1", "--port", c.port)
	}
}

// TestScheme: the scheme follows from the appProtocol of a port or, without one, from its name and number. A port that
// no URL is for has none.
func TestScheme(t *testing.T) {
	for want, ports := range map[string][]v1alpha1.ServicePort{
		"http://": {{Port: 80}, {Port: 8080, Name: "web"}, {Port: 9090, Name: "metrics"}, {Port: 443, Name: "http-x"},
			{Port: 443, AppProtocol: new("http")}, {Port: 1, AppProtocol: new("kubernetes.io/h2c")}},
		"https://": {{Port: 443}, {Port: 443, Name: "webhook"}, {Port: 8443, Name: "https"}, {Port: 1, Name: "https-api"},
			{Port: 80, Name: "http", AppProtocol: new("HTTPS")}},
		"ws://":  {{Port: 80, AppProtocol: new("kubernetes.io/ws")}},
		"wss://": {{Port: 443, AppProtocol: new("kubernetes.io/wss")}},
		"": {{Port: 53, Protocol: corev1.ProtocolUDP}, {Port: 443, Name: "https", Protocol: corev1.ProtocolUDP},
			{Port: 9000, Name: "grpc"}, {Port: 443, Name: "grpc-api"}, {Port: 443, Name: "tls"}, {Port: 1, Name: "tcp-x"},
			{Port: 6379, Name: "redis"}, {Port: 80, Name: "http", AppProtocol: new("example.com/own")},
			{Port: 443, AppProtocol: new("grpc")}},
	} {
		for _, port := range ports {
			if got := schemeOf(&port); got != want {
				t.Errorf("%q, want %q: %+v", got, want, port)
			}
		}
	}
}

// TestURLOfSpelledNode: a node may be given as its name spells it. If nothing answers there, a warning says so.
func TestURLOfSpelledNode(t *testing.T) {
	const warning = "warning: nothing answers as %s now: see `kubectl localservice nodes demo -n default`\n"
	for _, node := range []string{"k8s03.lab", "k8s03-lab"} {
		f := newFixture(t, service("demo-k8s03-lab", "k8s03.lab"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "k8s03.lab", Labels: map[string]string{"disk": "ssd"}}})
		f.want(t, "http://demo-k8s03-lab.default:80\n", fmt.Sprintf(warning, "demo-k8s03-lab.default"), "url", "demo", node)
	}
}

// TestMany: without a name, the LocalServices of the namespace, or of all, are in one table.
func TestMany(t *testing.T) {
	f := newFixture(t)
	headless := localService("demo-10", "None", v1alpha1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(8080)})
	headless.Labels = map[string]string{"team": "b"}
	headless.Namespace, headless.Spec.NodeSelector = "ops", map[string]string{"zone": "EU.b"}
	second := localService("demo-2", "")
	second.Spec.NodeSelector = map[string]string{"zone": "none"}
	second.Status.Conditions[0].Reason, second.Status.Conditions[0].Message = v1alpha1.ReasonNoNodesSelected, "no node"
	if err := errors.Join(f.localServices.Tracker().Add(headless), f.localServices.Tracker().Add(second)); err != nil {
		t.Fatal(err)
	}
	const table = `
NAMESPACE   LOCALSERVICE   NODE   NAME         ENDPOINTS   REASON
default     demo           n1     demo-n1      2/2         
default     demo           n2     demo-n2      0/1         exit code 1 (c: 5 restarts)
default     demo           n3     demo-n3      0/0         no matching pod here (app=demo)
default     demo           n4     demo-n4      0/0         no Service; Services are being written
default     demo           n5     demo-n5      0/0         the name is taken by a Service without an owner (demo-n5)
ops         demo-10        n3     demo-10-n3   0/0         no Service; Services are being written
`
	code, stdout, stderr := f.run(t, "nodes", "-A")
	if code != 0 || "\n"+stdout != table {
		t.Errorf("exit code %d, got:\n%s\nwant:%s", code, stdout, table)
	}
	for _, line := range []string{
		"ops/demo-10: No pod in namespace ops has the labels app=demo.",
		"default/demo on n5: if it is for the pods on node n5, have it adopted: kubectl patch",
		"LocalService default/demo-2: nodes 0, answering 0/0, status NoNodesSelected: ",
	} {
		if strings.Count("\n"+stderr, "\n"+line) != 1 {
			t.Errorf("%s\ndoes not have the line %s", stderr, line)
		}
	}
	for args, want := range map[string]string{ // jsonpath cannot go on after an empty list.
		"nodes -o jsonpath={.kind}:{.items[*].localService}": "List:demo demo-2",
		"nodes -A -o jsonpath={range.items[*]}{.localService}:{.items[*].node},{end}": "" +
			"demo:n1 n2 n3 n4 n5,demo-2:,demo-10:n3,",
		"nodes -A --problems -o jsonpath={range.items[*]}{.items[*].node},{end}": "n2 n3 n4 n5,,n3,",
		"nodes -n nothing -o jsonpath={.items}":                                  "[]",
		"nodes -o name":                                                          "service/demo-n1\nservice/demo-n2\nservice/demo-n3\n",
		"nodes demo-2 demo -o jsonpath={.items[*].localService}":                 "demo demo-2",
		"nodes -A -l team=b -o jsonpath={.items[*].localService}":                "demo-10",
		"nodes -A -l team=c -l team=b -o jsonpath={.items}":                      "[]",
	} {
		f.want(t, want, "", strings.Split(args, " ")...)
	}
	f.want(t, "", "There is no LocalService in namespace nothing.\n", "nodes", "-n", "nothing")
	f.want(t, "", "There is no LocalService with labels team=c in any namespace.\n", "nodes", "-A", "-l", "team=c")
	f.wantError(t, "no LocalService default/nix", "nodes", "demo", "nix")
}

// TestOrphans: Services that a deleted LocalService has left are mentioned where it is missed, and beside others.
func TestOrphans(t *testing.T) {
	orphan, foreign, adopted := service("cache-n1", "n1"), service("cache-n2", "n2"), service("demo-n6", "n6")
	orphan.OwnerReferences, orphan.Namespace, adopted.OwnerReferences = nil, "ops", nil
	foreign.OwnerReferences, foreign.Namespace, foreign.Annotations = nil, "plain", nil
	f := newFixture(t, orphan, foreign, adopted)
	const left = "Services of a deleted LocalService ops/cache are left (--cascade=orphan), and will not lead to new pods. " +
		"Create it again, or delete them: kubectl delete services -n ops -l owner=cache\n"
	f.want(t, "", "There is no LocalService in namespace ops. "+left, "nodes", "-n", "ops")
	f.want(t, "", "There is no LocalService in namespace plain.\n", "nodes", "-n", "plain")
	f.wantError(t, "no LocalService ops/cache: … chooses another one. "+left, "nodes", "-n", "ops", "cache")
	if err := f.localServices.Tracker().Add(objects.Edit(localService("other", ""), func(ls *v1alpha1.LocalService) {
		ls.Namespace = "ops"
	})); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{"nodes -n ops": 1, "nodes -A": 1, "nodes -n ops other": 0, "nodes": 0,
		"nodes -n ops nix": 0} {
		_, _, stderr := f.run(t, strings.Split(args, " ")...)
		if strings.Count("\n"+stderr, "\n"+left) != want || strings.Count(stderr, "deleted") != want {
			t.Errorf("%s: %s", args, stderr)
		}
	}
	_, stdout, _ := f.run(t, "nodes", "-n", "ops", "-o", "jsonpath={.items[0].message}")
	if !strings.Contains(stdout, strings.TrimSpace(left)) {
		t.Errorf("for programs: %s", stdout)
	}
}

// TestExitCode: scripts learn by --exit-code whether all names answer.
func TestExitCode(t *testing.T) {
	f := newFixture(t)
	ready := localService("ready", "", demoPorts...)
	ready.Spec.NodeSelector, ready.Status.Conditions = map[string]string{"zone": zones[2]}, nil
	if err := errors.Join(f.localServices.Tracker().Add(ready), f.kube.Tracker().Add(service("ready-n3", "n3")),
		f.kube.Tracker().Add(slice("ready-n3", "a", "b"))); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{"nodes demo": 0, "nodes ready --exit-code": 0, "nodes demo --exit-code": 1,
		"nodes --exit-code -o name": 1} {
		if code, stdout, stderr := f.run(t, strings.Split(args, " ")...); code != want || strings.Contains(stderr, "error") {
			t.Errorf("%s: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

// TestNoProblems: --problems says so if there are none.
func TestNoProblems(t *testing.T) {
	f := newFixture(t)
	f.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1",
			Labels: map[string]string{"disk": "ssd"}}}}}, nil
	})
	code, stdout, stderr := f.run(t, "nodes", "demo", "--problems")
	if code != 0 || stdout != "" || !strings.HasSuffix(stderr, "\nNo name has a problem.\n") {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

// TestExternalURL: clients outside the cluster use the load balancer, or the node's address and the node port.
func TestExternalURL(t *testing.T) {
	typed := func(serviceType corev1.ServiceType, nodePort int32,
		ingress ...corev1.LoadBalancerIngress) *corev1.Service {
		s := service("s-n6", "n6")
		s.Spec.Type, s.Spec.Ports = serviceType, []corev1.ServicePort{{Name: "http", Port: 80, NodePort: nodePort}}
		s.Status.LoadBalancer.Ingress = ingress
		return s
	}
	internal := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}
	external := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "2001:db8::1"}
	for name, c := range map[string]struct {
		service   *corev1.Service
		addresses []corev1.NodeAddress
		want      string
	}{
		"load balancer": {typed("LoadBalancer", 30080, corev1.LoadBalancerIngress{IP: "203.0.113.1"}), nil,
			"http://203.0.113.1:80\n"},
		"its name": {typed("LoadBalancer", 0, corev1.LoadBalancerIngress{Hostname: "lb.example"}), nil,
			"http://lb.example:80\n"},
		"no load balancer yet": {typed("LoadBalancer", 30080), []corev1.NodeAddress{internal},
			"http://192.0.2.1:30080\n"},
		"node port": {typed("NodePort", 30080), []corev1.NodeAddress{internal}, "http://192.0.2.1:30080\n"},
		"external address": {typed("NodePort", 30080), []corev1.NodeAddress{internal, external},
			"http://[2001:db8::1]:30080\n"},
		"node without addresses": {typed("NodePort", 30080), nil, "error: node n6 has no address: look"},
		"cluster IP": {typed("ClusterIP", 0), nil,
			"error: no address for clients outside the cluster in Service default/s-n6: set spec.type"},
		"no address": {typed("NodePort", 30080), []corev1.NodeAddress{{Type: corev1.NodeExternalIP,
			Address: "evil.example -o \x1b[31m"}}, `error: node n6 reports the address "evil.example -o \x1b[31m", which`},
		"no address, but a zone": {typed("NodePort", 30080), []corev1.NodeAddress{{Type: corev1.NodeExternalIP,
			Address: "fe80::1%$(reboot)"}}, `error: node n6 reports the address "fe80::1%$(reboot)", which`},
	} {
		f := newFixture(t, c.service)
		f.localServices = fake.NewClientset(localService("s", "", v1alpha1.ServicePort{Name: "http", Port: 80}))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n6", Labels: map[string]string{"disk": "ssd"}},
			Status: corev1.NodeStatus{Addresses: c.addresses}}
		if err := f.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			t.Fatal(err)
		}
		_, stdout, stderr := f.run(t, "url", "s", "n6", "--external")
		if got := stdout + stderr; !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %s; want %s", name, got, c.want)
		}
	}
	newHostnamesFixture(t, "").wantError(t, "LocalService default/demo is for clients inside the cluster", "url", "demo",
		"n1", "--external")
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))

func TestErrors(t *testing.T) {
	noCRD := apierrors.NewGenericServerResponse(404, "GET", v1alpha1.Resource("localservices"), "demo",
		"404 page not found", 0, true)
	for _, c := range []struct {
		args     string
		resource string // that fails
		err      error
		want     string
	}{
		{args: "nodes --dns-service a/b demo", want: "set --dns, too"},
		{args: "url", want: "received 0\nUsage: kubectl localservice url NAME NODE…See 'kubectl"},
		{args: "nodes demo -A", want: "leave out either the name, or -A and -l"},
		{args: "nodes demo -l a=b", want: "leave out either the name, or -A and -l"},
		{args: "nodes -l a==b=", want: "a==b="},
		{args: "nodes -w --exit-code", want: "leave out --watch"},
		{args: "url demo", want: "received 1\nUsage: kubectl localservice url NAME NODE"},
		{args: "nodes demo --frob", want: "unknown flag: --frob…See 'kubectl localservice nodes -h'"},
		{args: "frob", want: `unknown command "frob" for "kubectl localservice"`},
		{args: "nodes demo -o xml", want: `output format "xml", allowed formats are: …,json,…,wide,yaml`},
		{args: "nodes nix -n other", want: "no LocalService other/nix: …`kubectl get localservices -n other`"},
		{args: "url demo n6", want: "no name for node n6: see `kubectl localservice nodes demo -n default`"},
		{args: "url demo n7", want: "no name for node n7: there is no such node"},
		{args: "url demo n5", want: "no name for node n5: the name is taken by a Service without an owner…" +
			"see `kubectl localservice nodes demo -n default`"},
		{args: "url demo n1 --port x", want: "has no port x: choose one of http 80, metrics 9090"},
		{args: "url no-ports n1", want: "names no ports: choose one of the pods' with --port"},
		{args: "url headless n1", want: "the pods' own port web, and Service default/headless-n1 has…" +
			"see `kubectl localservice nodes headless -n"},
		{"nodes demo", "localservices", noCRD, "not know LocalServices…install.yaml of a release"},
		{"nodes demo", "pods", forbidden, "ask for the permission: pods is forbidden"},
		{"url demo n1", "services", forbidden, "ask for the permission"},
		{"nodes demo", "localservices", apierrors.NewUnauthorized("who?"), "does not accept your credentials"},
	} {
		t.Run(c.args, func(t *testing.T) {
			f := newFixture(t, service("headless-n1", "n1"))
			named := v1alpha1.ServicePort{Port: 80, TargetPort: intstr.FromString("web")}
			if err := errors.Join(f.localServices.Tracker().Add(localService("no-ports", "")),
				f.localServices.Tracker().Add(localService("headless", "None", named))); err != nil {
				t.Fatal(err)
			}
			if c.err != nil {
				for _, fake := range []*clienttesting.Fake{&f.kube.Fake, &f.localServices.Fake} {
					fail(fake, c.resource, c.err)
				}
			}
			f.wantError(t, c.want, strings.Fields(c.args)...)
		})
	}
}

func fail(f *clienttesting.Fake, resource string, err error) {
	f.PrependReactor("*", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// TestCredentialPlugins: a credential plugin of the kubeconfig runs only if the user's kuberc permits that. What it sets
// for kubectl's own commands does not matter.
func TestCredentialPlugins(t *testing.T) {
	for policy, runs := range map[string]bool{"AllowAll": true, "DenyAll": false} {
		dir := t.TempDir()
		ran := filepath.Join(dir, "ran")
		config := clientcmdapi.NewConfig()
		config.Clusters["none"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
		config.AuthInfos["plugin"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "touch",
			Args: []string{ran}, APIVersion: "client.authentication.k8s.io/v1",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
		config.Contexts["none"] = &clientcmdapi.Context{Cluster: "none", AuthInfo: "plugin"}
		config.CurrentContext = "none"
		kubeconfig, preferences := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "kuberc")
		text := "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ncredentialPluginPolicy: " + policy +
			"\ndefaults: [{command: get, options: [{name: watch, default: 'true'}]}]\n"
		if err := errors.Join(clientcmd.WriteToFile(*config, kubeconfig),
			os.WriteFile(preferences, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBECONFIG", kubeconfig)
		t.Setenv("KUBERC", preferences)
		var errOut bytes.Buffer
		f := newFactory(genericiooptions.IOStreams{Out: &errOut, ErrOut: &errOut})
		code := run(f, []string{"nodes", "demo"})
		_, err := os.Stat(ran)
		if (err == nil) != runs || strings.Contains(errOut.String(), "not allowed") == runs {
			t.Errorf("%s: it ran: %t; %s", policy, err == nil, errOut.String())
		}
		if code != 1 || !strings.HasPrefix(errOut.String(), "error: ") {
			t.Errorf("%s: exit code %d: %s", policy, code, errOut.String())
		}
	}
}

// TestUnreachable sends requests to a cluster that does not exist, with real clients.
func TestUnreachable(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var errOut bytes.Buffer
	f := newFactory(genericiooptions.IOStreams{Out: &errOut, ErrOut: &errOut})
	const want = "error: the cluster cannot be reached: check that it runs, and that $KUBECONFIG or"
	if code := run(f, []string{"nodes", "demo", "--server=http://127.0.0.1:1"}); code != 1 ||
		!strings.HasPrefix(errOut.String(), want) {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}

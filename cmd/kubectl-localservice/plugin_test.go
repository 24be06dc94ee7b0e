package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

func TestOutput(t *testing.T) {
	const summary = "LocalService default/demo: nodes 5, answering 1/5, status WritingServices.\n"
	const labels = "Node labels: set by the controller, after the binding; with the binding on 2 of 3 pods.\n"
	newFixture(t).wantOutput(t, summary+labels, map[string]string{
		"nodes demo": `
NODE   SERVICE   DNS-NAME                            ENDPOINTS   REASON
n1     demo-n1   demo-n1.default.svc.cluster.local   2/2         
n2     demo-n2   demo-n2.default.svc.cluster.local   0/1         not ready: c (CrashLoopBackOff)
n3     demo-n3   demo-n3.default.svc.cluster.local   0/0         no pod with app=demo here
n4     demo-n4   demo-n4.default.svc.cluster.local   0/0         no such Service: the controller says WritingServices: Services are being written
n5     demo-n5   demo-n5.default.svc.cluster.local   0/0         the name is taken by a Service without an owner: if nothing uses it, delete it; if the app needs it, create this LocalService under another name
`,
		"nodes lsvc/demo -o wide --cluster-domain example.org": `
NODE   SERVICE   DNS-NAME                          ENDPOINTS   PODS     ADDRESSES           REASON
n1     demo-n1   demo-n1.default.svc.example.org   2/2         a,b      10.0.0.1,10.0.0.2   
n2     demo-n2   demo-n2.default.svc.example.org   0/1         c        <none>              not ready: c (CrashLoopBackOff)
n3     demo-n3   demo-n3.default.svc.example.org   0/0         <none>   <none>              no pod with app=demo here
n4     demo-n4   demo-n4.default.svc.example.org   0/0         <none>   <none>              no such Service: the controller says WritingServices: Services are being written
n5     demo-n5   demo-n5.default.svc.example.org   0/0         <none>   <none>              the name is taken by a Service without an owner: if nothing uses it, delete it; if the app needs it, create this LocalService under another name
`,
		"nodes demo -o name": `
service/demo-n1
service/demo-n2
service/demo-n3
`,
		"nodes demo -o jsonpath={range.items[?(@.endpoints.ready==0)]}{.node}:{.reason}/{end}": `
n2:PodsNotReady/n3:NoPods/n4:ServiceMissing/n5:NameConflict/`,
		"__complete nodes d":     "\ndemo\n:4\n",
		"__complete nodes demo ": "\n:4\n",
		"__complete url demo n":  "\nn1\nn2\nn3\n:4\n",
		"__complete url nix n":   "\n:4\n",
		"__complete view d":      "\ndemo\n:4\n",
		"__complete view demo ":  "\n:4\n",
		"__complete completion ": "\n:4\n",
		"completion":             "\n#!/bin/sh\nexec kubectl-localservice __complete \"$@\"\n",
	})
}

// TestGolden holds the fields of -o json and -o yaml: scripts read them, so none may change its name or meaning.
func TestGolden(t *testing.T) {
	zones := newHostnamesFixture(t, "zone")
	for file, f := range map[string]*fixture{"nodes.json": newFixture(t), "hostnames.json": zones} {
		want, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := f.run(t, "nodes", "demo", "-o", "json"); code != 0 || stdout != string(want) {
			t.Errorf("%s: exit code %d %s: got:\n%s\nwant:\n%s", file, code, stderr, stdout, want)
		}
		code, stdout, stderr := f.run(t, "nodes", "demo", "-o", "yaml")
		asYAML, err := yaml.JSONToYAML(want)
		if err != nil || code != 0 || stdout != string(asYAML) {
			t.Errorf("%s as YAML: exit code %d %s: got:\n%s\nwant:\n%s", file, code, stderr, stdout, asYAML)
		}
	}
}

// TestRequests: however many nodes there are, there is one list of each resource, and one of the cordoned nodes.
func TestRequests(t *testing.T) {
	f := newFixture(t)
	f.run(t, "nodes", "demo")
	got := map[string]int{}
	for _, action := range slices.Concat(f.kube.Actions(), f.metadata.Actions(), f.localServices.Actions()) {
		got[action.GetVerb()+" "+action.GetResource().Resource]++
	}
	want := map[string]int{"get localservices": 1, "list nodes": 2, "list services": 1, "list endpointslices": 1,
		"list pods": 1}
	if !maps.Equal(got, want) {
		t.Errorf("requests: %v; want %v", got, want)
	}
}

func TestNodesWithoutPermission(t *testing.T) {
	f := newFixture(t)
	fail(&f.metadata.Fake, "nodes", forbidden)
	code, stdout, stderr := f.run(t, "nodes", "demo", "-o", "jsonpath={.items[*].node}")
	if code != 0 || stdout != "n1 n2 n3" || stderr != "warning: you may not list nodes, so that nodes without a "+
		"Service of this LocalService are not shown\n" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestNoNodes(t *testing.T) {
	f := newFixture(t)
	f.metadata.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{}, nil
	})
	const wantErr = `No node matches spec.nodeSelector "disk=ssd", and the controller keeps 3 Services of nodes that ` +
		"exist, whose names still work. Correct spec.nodeSelector or the labels of the nodes: kubectl get nodes " +
		"--show-labels\n" +
		"LocalService default/demo: nodes 0, answering 0/0, status WritingServices.\n"
	code, stdout, stderr := f.run(t, "nodes", "demo")
	if code != 0 || stdout != "" || stderr != wantErr {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestURL(t *testing.T) {
	type ports = []v1alpha1.ServicePort
	http := v1alpha1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}
	https := v1alpha1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromString("web")}
	tls := v1alpha1.ServicePort{Name: "x", Port: 1, AppProtocol: new("HTTPS")}
	const unobserved = "of a spec on which nobody has acted"
	for name, c := range map[string]struct {
		clusterIP string
		ports     ports
		port      string
		want      string
	}{
		"first port":           {"", ports{http, https}, "", "http://s-n1.default:80"},
		"by name":              {"", ports{http, https}, "https", "https://s-n1.default:443"},
		"by number":            {"", ports{http, https}, "443", "https://s-n1.default:443"},
		"appProtocol":          {"", ports{tls}, "", "https://s-n1.default:1"},
		"headless":             {"None", ports{http}, "", "http://s-n1.default:8080"},
		"headless, no target":  {"None", ports{{Port: 7}}, "", "http://s-n1.default:7"},
		"headless, with names": {"None", ports{http, https}, "https", "https://s-n1.default:8443"},
		unobserved:             {"None", ports{{Port: 81}}, "", "http://s-n1.default:81"},
	} {
		ls := localService("s", c.clusterIP, c.ports...)
		wantErr := ""
		if name == unobserved {
			ls.Generation++
			wantErr = "warning: The controller has not acted on the last change of the LocalService: is it running?\n"
		}
		f := newFixture(t, service("s-n1", "n1"), slice("s-n1"))
		f.localServices = fake.NewClientset(ls)
		code, stdout, stderr := f.run(t, "url", "s", "n1", "--port", c.port)
		if code != 0 || stdout != c.want+"\n" || stderr != wantErr {
			t.Errorf("%s: %d, %q, %q; want %q, %q", name, code, stdout, stderr, c.want, wantErr)
		}
	}
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
		{args: "nodes", want: "received 0: `kubectl get localservices` lists the names\n" +
			"Usage: kubectl localservice nodes NAME…See 'kubectl"},
		{args: "url demo", want: "received 1: `kubectl localservice nodes demo` lists the nodes\n" +
			"Usage: kubectl localservice url NAME NODE"},
		{args: "version demo", want: "received 1\nUsage"},
		{args: "nodes demo --frob", want: "unknown flag: --frob…See 'kubectl localservice nodes -h'"},
		{args: "frob", want: `unknown command "frob" for "kubectl localservice"`},
		{args: "nodes demo -o xml", want: `output format "xml", allowed formats are: …,json,…,yaml`},
		{args: "nodes nix -n other", want: "no LocalService other/nix: …`kubectl get localservices -n other`"},
		{args: "url demo n7", want: "no Service demo-n7 …: see `kubectl localservice nodes demo -n default`"},
		{args: "url demo n5", want: "no Service demo-n5 …, because the name is taken by another " +
			"Service: see `kubectl localservice nodes demo -n default`"},
		{args: "url demo n1 --port x", want: "has no port x: choose one of http 80, metrics 9090"},
		{args: "url no-ports n1", want: "names no ports"},
		{args: "url headless n1", want: "the pods' own port web…see `kubectl localservice nodes headless -n"},
		{"nodes demo", "localservices", noCRD, "not know LocalServices…install.yaml of a release"},
		{"nodes demo", "pods", forbidden, "you lack a permission…`kubectl auth can-i`: pods is forbidden"},
		{"url demo n1", "services", forbidden, "you lack a permission"},
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

// TestUnreachable sends requests to a cluster that does not exist, with real clients.
func TestUnreachable(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var errOut bytes.Buffer
	p := newPlugin(genericiooptions.IOStreams{Out: &errOut, ErrOut: &errOut})
	const want = "error: the cluster cannot be reached: check that it runs, and that $KUBECONFIG or"
	if code := p.run([]string{"nodes", "demo", "--server=http://127.0.0.1:1"}); code != 1 ||
		!strings.HasPrefix(errOut.String(), want) {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}

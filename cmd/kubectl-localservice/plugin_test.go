package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

// fixture is a plugin and the cluster that it looks at: LocalService demo has its Services on n1 to n3, nothing on n4,
// and another Service in its way on n5; n6 is not selected.
type fixture struct {
	kube          *kubefake.Clientset
	localServices *fake.Clientset
	metadata      *metadatafake.FakeMetadataClient
}

func newFixture(t *testing.T, more ...runtime.Object) *fixture {
	t.Helper()
	ls := &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid-of-demo", Generation: 1},
		Spec: v1alpha1.LocalServiceSpec{
			Selector:     map[string]string{"app": "demo"},
			NodeSelector: map[string]string{"disk": "ssd"},
			Ports:        []v1alpha1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}},
		},
		Status: v1alpha1.LocalServiceStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWritingServices,
				Message: "Services are being written"},
		}},
	}
	headless := ls.DeepCopy()
	headless.Name, headless.UID = "headless", "uid-of-headless"
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	headless.Spec.Ports = []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}}

	objects := append([]runtime.Object{
		service("demo-n1", "n1"), service("demo-n2", "n2"), service("demo-n3", "n3"),
		&corev1.Service{ObjectMeta: meta("demo-n5")},
		slice("demo-n1", endpoint("a", "10.0.0.1", true), endpoint("b", "10.0.0.2", true)),
		slice("demo-n2", endpoint("c", "10.0.0.3", false)),
		pod("a", "n1", true), pod("b", "n1", true), writtenBy(v1alpha1.FieldManager, pod("c", "n2", false)),
	}, more...)
	partial := []runtime.Object{}
	for i := range 6 {
		node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("n%d", i+1), Labels: map[string]string{"disk": "ssd"}}}
		if i == 5 {
			node.Labels = nil
		}
		partial = append(partial, node)
	}
	for _, object := range objects {
		if s, ok := object.(*corev1.Service); ok {
			partial = append(partial, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
				Kind: "Service"}, ObjectMeta: s.ObjectMeta})
		}
	}
	for _, name := range []string{"demo", "headless"} {
		partial = append(partial, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind},
			ObjectMeta: meta(name)})
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &fixture{
		kube:          kubefake.NewClientset(objects...),
		localServices: fake.NewClientset(ls, headless),
		metadata:      metadatafake.NewSimpleMetadataClient(scheme, partial...),
	}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default"}
}

// service is the Service of a LocalService for a node.
func service(name, node string) *corev1.Service {
	owner, _, _ := strings.Cut(name, "-")
	s := &corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "demo",
		"vm/rack": node}}}
	s.Labels = map[string]string{"owner": owner}
	s.Annotations = map[string]string{v1alpha1.NodeAnnotationKey: node}
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind, Name: owner,
		UID: types.UID("uid-of-" + owner), Controller: new(true)}}
	return s
}

func slice(service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta(service + "-abcde"), Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
	s.Labels = map[string]string{"owner": "demo", discoveryv1.LabelServiceName: service}
	return s
}

func endpoint(pod, address string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod}}
}

func pod(name, node string, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: node}}
	p.Labels = map[string]string{"app": "demo", "vm/rack": node}
	p.Status.Phase = corev1.PodRunning
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if !ready {
		condition.Status = corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	}
	p.Status.Conditions = []corev1.PodCondition{condition}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:app":{}}}}`)}}
	return p
}

// writtenBy makes somebody the manager of a pod's node label.
func writtenBy(manager string, p *corev1.Pod) *corev1.Pod {
	p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager,
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:vm/rack":{}}}}`)})
	return p
}

// run executes a command line.
func (f *fixture) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	p := newPlugin(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	p.connect = func() (*cluster, error) {
		namespace := "default"
		if *p.config.Namespace != "" {
			namespace = *p.config.Namespace
		}
		return &cluster{namespace: namespace, kube: f.kube, localServices: f.localServices, metadata: f.metadata}, nil
	}
	code = p.run(t.Context(), args)
	return code, out.String(), errOut.String()
}

func TestOutput(t *testing.T) {
	f := newFixture(t)
	const labels = "Node labels: set by the controller, after the binding; with the binding on 2 of 3 pods.\n"
	for args, want := range map[string]string{
		"nodes demo": `
NODE   SERVICE   DNS-NAME                            ENDPOINTS   REASON
n1     demo-n1   demo-n1.default.svc.cluster.local   2/2         
n2     demo-n2   demo-n2.default.svc.cluster.local   0/1         not ready: c (CrashLoopBackOff)
n3     demo-n3   demo-n3.default.svc.cluster.local   0/0         no pod with app=demo here
n4     demo-n4   demo-n4.default.svc.cluster.local   0/0         no such Service: the controller says WritingServices: Services are being written
n5     demo-n5   demo-n5.default.svc.cluster.local   0/0         the name is taken by a Service that nothing controls: delete or rename it
`,
		"nodes lsvc/demo --no-headers": `
n1    demo-n1   demo-n1.default.svc.cluster.local   2/2   
n2    demo-n2   demo-n2.default.svc.cluster.local   0/1   not ready: c (CrashLoopBackOff)
n3    demo-n3   demo-n3.default.svc.cluster.local   0/0   no pod with app=demo here
n4    demo-n4   demo-n4.default.svc.cluster.local   0/0   no such Service: the controller says WritingServices: Services are being written
n5    demo-n5   demo-n5.default.svc.cluster.local   0/0   the name is taken by a Service that nothing controls: delete or rename it
`,
		"nodes demo -o wide --cluster-domain example.org": `
NODE   SERVICE   DNS-NAME                          ENDPOINTS   PODS     ADDRESSES           REASON
n1     demo-n1   demo-n1.default.svc.example.org   2/2         a,b      10.0.0.1,10.0.0.2   
n2     demo-n2   demo-n2.default.svc.example.org   0/1         c        <none>              not ready: c (CrashLoopBackOff)
n3     demo-n3   demo-n3.default.svc.example.org   0/0         <none>   <none>              no pod with app=demo here
n4     demo-n4   demo-n4.default.svc.example.org   0/0         <none>   <none>              no such Service: the controller says WritingServices: Services are being written
n5     demo-n5   demo-n5.default.svc.example.org   0/0         <none>   <none>              the name is taken by a Service that nothing controls: delete or rename it
`,
		"nodes demo -o name": `
service/demo-n1
service/demo-n2
service/demo-n3
`,
		"nodes demo -o jsonpath={range.items[?(@.endpoints.ready==0)]}{.node}:{.reason}/{end}": `
n2:PodsNotReady/n3:NoPods/n4:ServiceMissing/n5:NameConflict/`,
		"nodes demo -o go-template={{range.items}}{{.service}}:{{.endpoints.ready}}/{{end}}": `
demo-n1:2/demo-n2:0/demo-n3:0/demo-n4:0/demo-n5:0/`,
		"url demo n1": "\nhttp://demo-n1.default:80\n",
		"url demo n1 --cluster-domain cluster.local":                   "\nhttp://demo-n1.default.svc.cluster.local:80\n",
		"url localservices.localservice.dev/demo no/n2 --port metrics": "\nhttp://demo-n2.default:9090\n",
		"__complete nodes d":             "\ndemo\n:4\n",
		"__complete nodes demo ":         "\n:4\n",
		"__complete url demo n":          "\nn1\nn2\nn3\nn4\nn5\n:4\n",
		"__complete url nix n":           "\n:4\n",
		"__complete url demo n1 --port ": "\nhttp\nmetrics\n:4\n",
	} {
		t.Run(args, func(t *testing.T) {
			code, stdout, stderr := f.run(t, strings.Split(args, " ")...)
			wantErr := ""
			if strings.HasPrefix(stdout, "NODE ") { // not beside what scripts read
				wantErr = labels
			}
			if code != 0 || stderr != wantErr && !strings.HasPrefix(args, "__complete") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			if "\n"+stdout != want {
				t.Errorf("got:\n%s\nwant:%s", stdout, want)
			}
		})
	}
}

// TestGolden holds the fields of -o json and -o yaml: scripts read them, so none may change its name or meaning.
func TestGolden(t *testing.T) {
	f := newFixture(t)
	for _, format := range []string{"json", "yaml"} {
		want, err := os.ReadFile(filepath.Join("testdata", "nodes."+format))
		if err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := f.run(t, "nodes", "demo", "-o", format); code != 0 || stdout != string(want) {
			t.Errorf("exit code %d %s: got:\n%s\nwant:\n%s", code, stderr, stdout, want)
		}
	}
}

// TestRequests: however many nodes there are, there is one list of each resource, and a second one of Services only to
// find out who has taken a name.
func TestRequests(t *testing.T) {
	f := newFixture(t)
	f.run(t, "nodes", "demo")
	got := map[string]int{}
	for _, action := range append(append(f.kube.Actions(), f.metadata.Actions()...), f.localServices.Actions()...) {
		got[action.GetVerb()+" "+action.GetResource().Resource]++
	}
	want := map[string]int{"get localservices": 1, "list nodes": 1, "list services": 2, "list endpointslices": 1,
		"list pods": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("requests: %v; want %v", got, want)
	}
}

func TestNodesWithoutPermission(t *testing.T) {
	f := newFixture(t)
	forbid(&f.metadata.Fake, "nodes")
	code, stdout, stderr := f.run(t, "nodes", "demo", "--no-headers")
	if want := "n1    demo-n1   demo-n1.default.svc.cluster.local   2/2   \nn2    demo-n2   " +
		"demo-n2.default.svc.cluster.local   0/1   not ready: c (CrashLoopBackOff)\nn3    demo-n3   " +
		"demo-n3.default.svc.cluster.local   0/0   no pod with app=demo here\n"; code != 0 || stdout != want {
		t.Errorf("exit code %d: got:\n%s\nwant:\n%s", code, stdout, want)
	}
	if want := "warning: you may not list nodes, so that nodes without a Service of this LocalService are not " +
		"shown\n"; stderr != want {
		t.Errorf("stderr: %q; want %q", stderr, want)
	}
	if code, stdout, stderr := f.run(t, "url", "demo", "n1"); code != 0 || stdout != "http://demo-n1.default:80\n" ||
		stderr != "" {
		t.Errorf("url: %d, %q, %q", code, stdout, stderr)
	}
}

func TestURLOfHeadless(t *testing.T) {
	f := newFixture(t, service("headless-n1", "n1"), slice("headless-n1"))
	if code, stdout, stderr := f.run(t, "url", "headless", "n1"); code != 0 ||
		stdout != "http://headless-n1.default:8080\n" || stderr != "" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestURLOfMissingService(t *testing.T) {
	code, stdout, stderr := newFixture(t).run(t, "url", "demo", "n4")
	if want := "warning: nothing answers there: there is no Service default/demo-n4 yet; see `kubectl " +
		"localservice nodes demo -n " +
		"default`\n"; code != 0 || stdout != "http://demo-n4.default:80\n" || stderr != want {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestNoNodes(t *testing.T) {
	f := newFixture(t)
	f.metadata.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{}, nil
	})
	code, stdout, stderr := f.run(t, "nodes", "demo")
	if want := "No node matches the nodeSelector disk=ssd of LocalService " +
		"default/demo.\n"; code != 0 || stdout != "" || stderr != want {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

func TestErrors(t *testing.T) {
	noCRD := apierrors.NewGenericServerResponse(404, "GET", localServicesResource.GroupResource(), "demo",
		"404 page not found", 0, true)
	for name, c := range map[string]struct {
		args  string
		given func(*fixture)
		want  []string
	}{
		"no name": {args: "nodes", want: []string{"error: NAME of a LocalService is " +
			"missing", "See 'kubectl localservice nodes -h'"}},
		"no node": {args: "url demo", want: []string{"error: NODE is missing", "See 'kubectl " +
			"localservice url -h'"}},
		"two names":        {args: "nodes demo other", want: []string{"unexpected arguments: other"}},
		"another resource": {args: "nodes pod/demo", want: []string{`"pod/demo" is not a LocalService: give its name, or lsvc/NAME`}},
		"empty name":       {args: "nodes lsvc/", want: []string{"the name of a LocalService is empty"}},
		"impossible name":  {args: "nodes a.b", want: []string{`"a.b" cannot be the name of a LocalService`}},
		"unknown flag": {args: "nodes demo --frob", want: []string{"unknown flag: --frob", "See 'kubectl " +
			"localservice nodes -h'"}},
		"unknown command": {args: "frob", want: []string{`unknown command "frob" for "kubectl localservice"`}},
		"unknown format":  {args: "nodes demo -o xml", want: []string{`there is no output format "xml": choose one of json, yaml,`}},
		"no LocalService": {args: "nodes nix -n other", want: []string{"get localservices.localservice.dev " +
			"other/nix", "`kubectl get localservices -n other`"}},
		"no such node": {args: "url demo n7", want: []string{"there is no node n7",
			"`kubectl localservice nodes demo -n default`"}},
		"node not selected": {args: "url demo n6", want: []string{"LocalService default/demo does not select " +
			"node n6", "nodeSelector disk=ssd"}},
		"unknown port": {args: "url demo n1 --port x", want: []string{"has no port x: choose one of http " +
			"(80), metrics (9090)"}},
		"URL of a conflict": {args: "url demo n5", want: []string{"no URL of LocalService default/demo on node " +
			"n5: Service demo-n5", "nothing controls"}},
		"URL of no endpoints": {args: "url headless n4", want: []string{"the pods' own port web", "none for node n4"}},
		"CRD not installed": {args: "nodes demo", want: []string{"does not know LocalServices", "kubectl create " +
			"-f artifacts/examples/crd.yaml"}, given: func(f *fixture) {
			fail(&f.localServices.Fake, "localservices", noCRD)
		}},
		"not permitted": {args: "nodes demo", want: []string{"list pods in namespace default: you lack the " +
			"permission", "kubectl auth can-i list pods -n default"}, given: func(f *fixture) {
			forbid(&f.kube.Fake, "pods")
		}},
		"nodes not permitted, no Service": {args: "url demo n4", want: []string{"you may not look whether there " +
			"is such a node"}, given: func(f *fixture) {
			forbid(&f.metadata.Fake, "nodes")
		}},
		"not logged in": {args: "nodes demo", want: []string{"does not accept your " +
			"credentials"}, given: func(f *fixture) {
			fail(&f.localServices.Fake, "localservices", apierrors.NewUnauthorized("who are you?"))
		}},
		"no cluster": {args: "nodes demo", want: []string{"the cluster cannot be " +
			"reached", "connection refused"}, given: func(f *fixture) {
			fail(&f.localServices.Fake, "localservices", errors.New("connection refused"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if c.given != nil {
				c.given(f)
			}
			code, stdout, stderr := f.run(t, strings.Fields(c.args)...)
			if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "error: ") &&
				!strings.HasPrefix(stderr, "warning: ") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%s\ndoes not say %q", stderr, want)
				}
			}
		})
	}
}

func forbid(f *clienttesting.Fake, resource string) {
	fail(f, resource, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no")))
}

func fail(f *clienttesting.Fake, resource string, err error) {
	f.PrependReactor("*", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// TestNoConfiguration: without a kubeconfig nothing is tried.
func TestNoConfiguration(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_MASTER", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var errOut bytes.Buffer
	p := newPlugin(genericiooptions.IOStreams{Out: &errOut, ErrOut: &errOut})
	if code := p.run(context.Background(), []string{"nodes", "demo"}); code != 1 ||
		!strings.Contains(errOut.String(), "there is no cluster to ask: set KUBECONFIG") {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}

// TestCompletionScript: kubectl runs the script, which must be executable, and `completion` prints the same.
func TestCompletionScript(t *testing.T) {
	const file = "kubectl_complete-localservice"
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&0o111 != 0o111 {
		t.Errorf("%s is not executable: %s", file, info.Mode())
	}
	_, stdout, _ := newFixture(t).run(t, "completion")
	if stdout != "#!/bin/sh\nexec kubectl-localservice __complete \"$@\"\n" {
		t.Errorf("completion prints %q", stdout)
	}
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := newFixture(t).run(t, "version"); code != 0 ||
		!strings.HasPrefix(stdout, "kubectl-localservice ") {
		t.Errorf("exit code %d: %q", code, stdout)
	}
	if got := programVersion("v1.2.3"); got != "v1.2.3" {
		t.Errorf("programVersion: %q", got)
	}
}

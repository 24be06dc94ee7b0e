package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

// fixture is a plugin and the cluster that it inspects: LocalService demo has its Services on n1 to n3, nothing on n4,
// and another Service in its way on n5; n6 is not selected.
type fixture struct {
	kube          *kubefake.Clientset
	localServices *fake.Clientset
	forward       func(ctx context.Context, namespace, pod string, port int32) (string, error)
}

func newFixture(t *testing.T, more ...runtime.Object) *fixture {
	t.Helper()
	for i := range 6 {
		node := objects.Node(fmt.Sprintf("n%d", i+1))
		if i < 5 {
			node.Labels = map[string]string{"disk": "ssd", "zone": zones[i]}
		}
		more = append(more, node)
	}
	f := &fixture{
		kube: kubefake.NewClientset(append([]runtime.Object{
			balanced(service("demo-n1", "n1")), service("demo-n2", "n2"), service("demo-n3", "n3"),
			objects.Service("demo-n5"),
			slice("demo-n1", "a", "b"), slice("demo-n2", "c!"),
			objects.Pod("a", "n1"), objects.Pod("b", "n1"), objects.Pod("c", "n2", crashing),
		}, more...)...),
		localServices: fake.NewClientset(localService("demo", "", demoPorts...)),
	}
	return f
}

var demoPorts = []v1alpha1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}}

func localService(name, clusterIP string, ports ...v1alpha1.ServicePort) *v1alpha1.LocalService {
	return objects.LocalService(objects.Named(name), objects.Selecting("disk=ssd"),
		objects.Reporting(metav1.ConditionFalse, v1alpha1.ReasonWritingServices, "Services are being written"),
		func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP, ls.Spec.Ports = clusterIP, ports })
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default"}
}

// service returns the Service of a LocalService for a node.
func service(name, node string) *corev1.Service {
	owner, _, _ := strings.Cut(name, "-")
	return templates(localService(owner, "", demoPorts...))[0].Service(node)
}

func templates(ls *v1alpha1.LocalService) plan.Templates {
	all, err := plan.NewTemplates(ls, v1alpha1.DefaultNodeLabelKey, nil)
	if err != nil {
		panic(err)
	}
	return all
}

// balanced is a Service with everything that has an address.
func balanced(s *corev1.Service) *corev1.Service {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1", "fd00::1"}
	s.Spec.Ports[0].NodePort = 30080
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "lb.example.com"}}
	return s
}

// slice returns the EndpointSlice of a Service, for pods such as a, and b!, which is not ready.
func slice(service string, pods ...string) *discoveryv1.EndpointSlice {
	s := objects.EndpointSlice(service, pods...)
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new("https"), Port: new(int32(8443))})
	return s
}

// crashing makes a pod one that ends again and again.
func crashing(p *corev1.Pod) {
	objects.NotReady(objects.Waiting("CrashLoopBackOff"))(p)
	c := &p.Status.ContainerStatuses[0]
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: metav1.Unix(1, 0)}
	c.RestartCount = 5
}

// run executes a command line.
func (f *fixture) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	p := newFactory(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	p.connect = func() (*cluster, error) {
		c := f.cluster(cmp.Or(*p.config.Namespace, "default"))
		c.kubectl = p.kubectl()
		return c, nil
	}
	code = run(p, args)
	return code, out.String(), errOut.String()
}

func (f *fixture) cluster(namespace string) *cluster {
	return &cluster{namespace: namespace, kube: f.kube, localServices: f.localServices,
		forward: f.forward}
}

// read reads all LocalServices of the namespace, and what they are made of.
func (f *fixture) read(t *testing.T) *reader {
	t.Helper()
	o, err := f.cluster("default").read(t.Context(), choice{clusterDomain: "cluster.local"}, true)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// want executes a command line, which must succeed and print this.
func (f *fixture) want(t *testing.T, wantOut, wantErr string, args ...string) {
	t.Helper()
	if code, stdout, stderr := f.run(t, args...); code != 0 || stdout != wantOut || stderr != wantErr {
		t.Errorf("%v: exit code %d, got:\n%s%s\nwant:\n%s%s", args, code, stdout, stderr, wantOut, wantErr)
	}
}

// wantOutput executes command lines, by what they print. Beside a table, there are lines on stderr; beside what scripts
// read, there are none.
func (f *fixture) wantOutput(t *testing.T, besideTables string, outputs map[string]string) {
	t.Helper()
	for args, want := range outputs {
		t.Run(args, func(t *testing.T) {
			code, stdout, stderr := f.run(t, strings.Split(args, " ")...)
			wantErr := ""
			if strings.Contains(stdout, "exit code 1 (c") {
				wantErr = besideTables
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

// wantError executes a command line, which must fail with an error that has the parts of want, between …, in order.
func (f *fixture) wantError(t *testing.T, want string, args ...string) {
	t.Helper()
	code, stdout, stderr := f.run(t, args...)
	if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "error: ") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if !containsInOrder(stderr, want) {
		t.Errorf("%s\ndoes not say %q", stderr, want)
	}
}

// containsInOrder reports whether a text has the parts of want, between …, in order.
func containsInOrder(text, want string) bool {
	for part := range strings.SplitSeq(want, "…") {
		_, after, found := strings.Cut(text, part)
		if text = after; !found {
			return false
		}
	}
	return true
}

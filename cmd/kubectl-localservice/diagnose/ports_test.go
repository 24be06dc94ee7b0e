package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestPortsMissing: a name with a cluster IP answers only if all of its ports are published. A headless one resolves,
// but is degraded.
func TestPortsMissing(t *testing.T) {
	containing := func(ports ...corev1.ContainerPort) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Ports: ports}} }
	}
	http := containing(corev1.ContainerPort{Name: "http", ContainerPort: 8080}, corev1.ContainerPort{ContainerPort: 1})
	web, metrics := port("web", 80, intstr.FromString("web")), port("metrics", 90, intstr.FromInt32(9090))
	none, both := []string{}, []string{"web", "metrics"}
	for name, c := range map[string]struct {
		headless  bool
		wanted    []v1alpha1.ServicePort
		published [][]string // the ports of each EndpointSlice
		pod       *corev1.Pod
		state     State
		ready     int
		message   string
	}{
		"published": {wanted: []v1alpha1.ServicePort{web, metrics}, published: [][]string{both},
			pod: pod("a", "n1", http), state: Healthy, ready: 1},
		"none": {wanted: []v1alpha1.ServicePort{web}, published: [][]string{none}, pod: pod("a", "n1"), state: Down,
			message: `no container of a has a port named "web" (it names no port): nothing listens behind port 80`},
		"one of two": {wanted: []v1alpha1.ServicePort{web, metrics}, published: [][]string{{"metrics"}},
			pod: pod("a", "n1", http), state: Down,
			message: `no container of a has a port named "web" (it has http: 8080/TCP): nothing listens behind port 80`},
		"each of two at another pod": {wanted: []v1alpha1.ServicePort{web, port("metrics", 90,
			intstr.FromString("metrics"))}, published: [][]string{{"metrics"}, {"web"}}, pod: pod("a", "n1", http),
			state: Healthy, ready: 1},
		"published for one of two pods": {wanted: []v1alpha1.ServicePort{web}, published: [][]string{none, {"web"}},
			pod: pod("a", "n1", http), state: Healthy, ready: 1},
		"headless": {headless: true, wanted: []v1alpha1.ServicePort{web}, published: [][]string{none},
			pod: pod("a", "n1", http), state: Degraded, ready: 1,
			message: `no container of a has a port named "web" (it has http: 8080/TCP): nothing listens behind port 80`},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Nodes: nodes("n1"), Pods: []*corev1.Pod{c.pod},
				LocalService: localService(func(ls *v1alpha1.LocalService) {
					ls.Spec.Ports = c.wanted
					if c.headless {
						ls.Spec.ClusterIP = corev1.ClusterIPNone
					}
				})}
			in.Services = []*corev1.Service{templates(in.LocalService)[0].Service("n1")}
			for _, names := range c.published {
				published := slice("n1", endpoint("a", "10.0.0.1", true))
				for _, name := range names {
					published.Ports = append(published.Ports, discoveryv1.EndpointPort{Name: &name})
				}
				in.EndpointSlices = append(in.EndpointSlices, published)
			}
			got := nodesOf(t, in).Items[0]
			if got.State() != c.state || got.Endpoints.Ready != c.ready || got.Message != c.message ||
				(c.message == "") != (got.Reason == "") {
				t.Errorf("got %s, %d ready, %q: %s", got.State(), got.Endpoints.Ready, got.Reason, got.Message)
			}
		})
	}
}

// TestNamedPorts: the number that a named port has in the pods is in the EndpointSlices.
func TestNamedPorts(t *testing.T) {
	published := slice("n1", endpoint("a", "10.0.0.1", true))
	published.Ports = []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(8080))}}
	in := Input{Nodes: nodes("n1"), Services: []*corev1.Service{service("n1")}, Pods: []*corev1.Pod{pod("a", "n1")},
		EndpointSlices: []*discoveryv1.EndpointSlice{published},
		LocalService: localService(func(ls *v1alpha1.LocalService) {
			ls.Spec.ClusterIP = corev1.ClusterIPNone
			ls.Spec.Ports = []v1alpha1.ServicePort{port("web", 80, intstr.FromString("web"))}
		})}
	const want = "Clients must connect to port 8080 (not 80): a headless Service does not translate ports."
	if got := nodesOf(t, in).Message; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func port(name string, number int32, target intstr.IntOrString) v1alpha1.ServicePort {
	return v1alpha1.ServicePort{Name: name, Port: number, TargetPort: target}
}

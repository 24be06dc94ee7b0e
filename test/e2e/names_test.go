package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestNames runs the script and the sidecar of the recipe for a list of all names. TestWalkThrough types its commands.
func TestNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.load(dnsImage)
	s.create("names.yaml", "peer-list.yaml")
	s.MustKubectl("rollout", "status", "daemonset/workers", "--timeout=2m")
	s.MustKubectl("rollout", "status", "deployment/router", "--timeout=2m")
	name := func(node, ls string) string { return node + "." + ls + "." + s.Namespace + ".svc.cluster.local" }
	one := name(nodes[0], "workers") + ":8080\n"
	all := fmt.Sprintf("%s:8080,%s:8080,%s", name(nodes[0], "workers"), name(nodes[1], "workers"),
		name(nodes[2], "workers")+":8080\n")
	s.wantFile("/names/peers", all)

	for format, want := range map[string]string{
		"lines": strings.NewReplacer(":8080", "", ",", "\n").Replace(all),
		"slots": strings.NewReplacer(":8080", " slots=8", ",", "\n").Replace(all),
		"comma": all,
		"json":  `["` + strings.ReplaceAll(strings.TrimSpace(all), ",", `","`) + `"]` + "\n",
	} {
		got := s.inSidecar("EVERY= sh /etc/names/write.sh " + format + " /tmp/x _http._tcp.workers && cat /tmp/x")
		if got != want {
			t.Errorf("format %s is %q, want %q", format, got, want)
		}
	}

	// What is equal is not written again: the file is still the same one after another round.
	s.inSidecar("ln /names/peers /names/before && touch /tmp/now")
	s.eventuallyInSidecar("the sidecar has asked again", "[ /names/peers.new -nt /tmp/now ]")
	s.inSidecar("[ /names/peers -ef /names/before ]")
	// A change replaces the file, so who has opened it reads it to its end.
	s.Update("workers", func(ls *v1alpha1.LocalService) {
		ls.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodes[0]}
	})
	s.wantFile("/names/peers", one)
	if got := s.inSidecar("cat /names/before"); got != all {
		t.Errorf("the file of before is %q, want %q", got, all)
	}
	s.Update("workers", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = nil })
	s.wantFile("/names/peers", all)
	// If one of several answers is missing, the file stays.
	const write = "EVERY= timeout 3 sh /etc/names/write.sh lines /tmp/x _http._tcp.workers _http._tcp.none"
	if got := s.inSidecar("echo before >/tmp/x; " + write + "; cat /tmp/x"); got != "before\n" {
		t.Errorf("without an answer, the file becomes %q", got)
	}
	s.wantAllNames(name)
	s.wantWholeAnswers()
}

// wantAllNames fails unless a name whose pod is not ready is in the list of a LocalService that publishes it, and in no
// other list.
func (s *scene) wantAllNames(name func(node, ls string) string) {
	s.T.Helper()
	s.hostnames("ready")
	s.hostnames("every", func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
	s.Launch(barePod("ready", nodes[0], nil))
	stuck := barePod("stuck", nodes[1], nil)
	stuck.Spec.Containers[0].ReadinessProbe.HTTPGet.Port = intstr.FromInt32(9)
	s.Launch(stuck)
	const write = "EVERY= timeout 9 sh /etc/names/write.sh lines /tmp/%[1]s _http._tcp.%[1]s; cat /tmp/%[1]s"
	for ls, want := range map[string][]string{"ready": nodes[:1], "every": nodes[:2]} {
		s.Eventually("the list of "+ls+" has "+fmt.Sprint(want), func(ctx context.Context) error {
			got, err := s.sidecar(ctx, fmt.Sprintf(write, ls))
			names := ""
			for _, node := range want {
				names += name(node, ls) + "\n"
			}
			if err == nil && got != names {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
	}
}

// wantWholeAnswers fails unless names that do not fit into one answer are refused, and fit into two.
func (s *scene) wantWholeAnswers() {
	s.T.Helper()
	s.publish("half-a", 600)
	s.publish("half-b", 600)
	s.publish("many", 1200)
	const write = "EVERY= timeout 9 sh /etc/names/write.sh lines /tmp/many "
	s.eventuallyInSidecar("two answers have all names",
		write+"_http._tcp.half-a _http._tcp.half-b && [ $(wc -l </tmp/many) = 1200 ]")
	s.Eventually("an answer that is cut is refused", func(ctx context.Context) error {
		got, err := s.sidecar(ctx, "rm -f /tmp/many; "+write+"_http._tcp.many 2>&1; [ ! -e /tmp/many ]")
		if err == nil && !strings.Contains(got, "_http._tcp.many has more names than fit") {
			err = fmt.Errorf("the script says %q", got)
		}
		return err
	})
}

// publish creates a headless Service with as many endpoints, each with a hostname.
func (s *scene) publish(service string, endpoints int) {
	s.T.Helper()
	port := corev1.ServicePort{Name: "http", Port: appPort}
	s.CreateService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{port}}})
	for first := 0; first < endpoints; first += 600 {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: service + "-",
				Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &port.Name, Port: &port.Port}},
		}
		for i := first; i < min(first+600, endpoints); i++ {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{net.IPv4(10, 244, byte(i/250), byte(i%250)).String()},
				Hostname:  new(fmt.Sprintf("gpu-%04d", i)),
			})
		}
		_, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Create(s.Ctx(), slice, metav1.CreateOptions{})
		s.Must(err)
	}
}

// TestAddresses checks what the recipe for programs that take no name says about addresses.
func TestAddresses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.load(busyboxImage)
	s.load(dnsImage)
	s.create("address.yaml", "host.yaml")
	s.MustKubectl("rollout", "status", "daemonset/engine", "--timeout=2m")
	before := s.addresses()
	s.wantEngines(before)
	s.MustKubectl("delete", "pods", "--selector=app=engine")
	s.MustKubectl("rollout", "status", "daemonset/engine", "--timeout=2m")
	if after := s.addresses(); after != before {
		t.Errorf("with other pods, the addresses are %q; before %q", after, before)
	}
	s.wantEngines(before)
	clusterIP := strings.Fields(before)[1]
	_, err := s.Kubectl(s.Ctx(), "exec", "--namespace="+s.Namespace, "daemonset/engine", "--", "httpd", "-f", "-p",
		clusterIP+":9000")
	if err == nil || !strings.Contains(err.Error(), "bind") {
		t.Errorf("listening at a cluster IP: %v", err)
	}

	s.MustKubectl("rollout", "status", "daemonset/host", "--timeout=2m")
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: searching, namespace: %[1]s}, spec: {
		dnsConfig: {searches: [host.%[1]s.svc.cluster.local]}, terminationGracePeriodSeconds: 0,
		containers: [{name: dig, image: %[2]q, command: [sleep, "1000"]}]}}`, s.Namespace, dnsImage[0]))
	s.MustKubectl("wait", "--for=condition=Ready", "pod/searching", "--timeout=2m")
	for _, node := range nodes {
		hostIP := strings.Fields(s.MustKubectl("get", "pods", "--selector=app=host",
			"--field-selector=spec.nodeName="+node, "--output=jsonpath={.items[0].status.hostIP}"))[0]
		s.Eventually(node+" alone is the name of the node's address", func(ctx context.Context) error {
			got, err := s.Kubectl(ctx, "exec", "--namespace="+s.Namespace, "searching", "--", "dig", "+short", "+search",
				node)
			if err == nil && strings.TrimSpace(got) != hostIP {
				err = fmt.Errorf("it has %q instead of %q", got, hostIP)
			}
			return err
		})
	}
}

// addresses returns what the command of the recipe prints: a line for each node, with its name and its address.
func (s *scene) addresses() string {
	s.T.Helper()
	stdout, _, err := framework.PluginProgram.Run(s.Ctx(), nil, []string{"KUBECONFIG=" + s.Kubeconfig}, "nodes", "engine",
		"--namespace", s.Namespace, "--output",
		`jsonpath={range .items[?(@.endpoints.ready>0)]}{.node} {.dnsAddresses[0]}{"\n"}{end}`)
	s.Must(err)
	if strings.Count(stdout, "\n") != len(nodes) {
		s.Fatalf("there are the addresses %q", stdout)
	}
	return stdout
}

// wantEngines waits until each node's address, from addresses, is answered by the pod there, which announces its name.
func (s *scene) wantEngines(addresses string) {
	s.T.Helper()
	for line := range strings.Lines(addresses) {
		node, address, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.Eventually(line+" is answered by the node's pod", func(ctx context.Context) error {
			replies, err := ask(ctx, nodes[0], []string{fmt.Sprintf("http://%s:%d/", address, appPort)})
			if err != nil {
				return err
			}
			want := fmt.Sprintf("announced as http://engine-%s:%d\n", node, appPort)
			if len(replies[0].Bodies) == 0 || !strings.HasSuffix(replies[0].Bodies[0], want) {
				return fmt.Errorf("the answers are %q, %s", replies[0].Bodies, replies[0].Error)
			}
			return nil
		})
	}
}

// load brings an image to the nodes of the shared cluster.
func (s *scene) load(image []string) {
	s.T.Helper()
	_, _, err := s.Playground(s.Ctx(), nil, "load", localImage(s.T, image))
	s.Must(err)
}

// create creates the objects of recipes in the scene's namespace.
func (s *scene) create(files ...string) {
	s.T.Helper()
	for _, file := range files {
		s.MustKubectl("create", "-f", framework.ModuleFile("artifacts", "examples", "recipes", file))
	}
}

// sidecar runs a command in the sidecar of the recipe, and returns its standard output.
func (s *scene) sidecar(ctx context.Context, command string) (string, error) {
	return s.Kubectl(ctx, "exec", "--namespace="+s.Namespace, "deployment/router", "--container=names", "--", "sh", "-c",
		command)
}

// inSidecar is sidecar for a command that must succeed.
func (s *scene) inSidecar(command string) string {
	s.T.Helper()
	out, err := s.sidecar(s.Ctx(), command)
	s.Must(err)
	return out
}

// eventuallyInSidecar waits until a command succeeds in the sidecar.
func (s *scene) eventuallyInSidecar(what, command string) {
	s.T.Helper()
	s.Eventually(what, func(ctx context.Context) error {
		_, err := s.sidecar(ctx, command)
		return err
	})
}

// wantFile waits until the sidecar has written this to a file.
func (s *scene) wantFile(path, want string) {
	s.T.Helper()
	s.Eventually(path+" is current", func(ctx context.Context) error {
		got, err := s.sidecar(ctx, "cat "+path)
		if err == nil && got != want {
			err = fmt.Errorf("it is %q instead of %q", got, want)
		}
		return err
	})
}

package diagnose

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func withPorts(clusterIP string, ports ...v1alpha1.ServicePort) *v1alpha1.LocalService {
	return localService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP, ls.Spec.Ports = clusterIP, ports })
}

func TestURL(t *testing.T) {
	http := v1alpha1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}
	https := v1alpha1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromString("web")}
	app := func(protocol string) v1alpha1.ServicePort {
		return v1alpha1.ServicePort{Name: "x", Port: 1, AppProtocol: &protocol}
	}
	dns := v1alpha1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}
	dnsTCP := v1alpha1.ServicePort{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP}
	slices := []discoveryv1.EndpointSlice{{Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(1))},
		{Name: new("https"), Port: new(int32(8443))}}}}

	for name, c := range map[string]struct {
		ls           *v1alpha1.LocalService
		port, domain string
		slices       []discoveryv1.EndpointSlice
		want         string
	}{
		"first port": {ls: withPorts("", http, https), want: "http://demo-n1.default:80"},
		"full name": {ls: withPorts("", http), domain: "cluster.local",
			want: "http://demo-n1.default.svc.cluster.local:80"},
		"by name": {ls: withPorts("", http, https), port: "https",
			want: "https://demo-n1.default:443"},
		"by number": {ls: withPorts("", http, https), port: "443",
			want: "https://demo-n1.default:443"},
		"appProtocol https":         {ls: withPorts("", app("HTTPS")), want: "https://demo-n1.default:1"},
		"appProtocol wss":           {ls: withPorts("", app("kubernetes.io/wss")), want: "wss://demo-n1.default:1"},
		"appProtocol ws":            {ls: withPorts("", app("kubernetes.io/ws")), want: "ws://demo-n1.default:1"},
		"appProtocol of no concern": {ls: withPorts("", app("mongo")), want: "http://demo-n1.default:1"},
		"appProtocol beats name": {ls: withPorts("", v1alpha1.ServicePort{Name: "https", Port: 1,
			AppProtocol: new("http")}), want: "http://demo-n1.default:1"},
		"TCP before others":            {ls: withPorts("", dns, dnsTCP), want: "http://demo-n1.default:53"},
		"TCP before others, by number": {ls: withPorts("", dns, dnsTCP), port: "53", want: "http://demo-n1.default:53"},
		"UDP":                          {ls: withPorts("", dns), want: "udp://demo-n1.default:53"},
		"headless":                     {ls: withPorts("None", http), want: "http://demo-n1.default:8080"},
		"headless, no targetPort":      {ls: withPorts("None", dnsTCP), want: "http://demo-n1.default:53"},
		"headless, empty targetPort": {ls: withPorts("None",
			v1alpha1.ServicePort{Port: 7, TargetPort: intstr.FromString("")}), want: "http://demo-n1.default:7"},
		"headless, named targetPort": {ls: withPorts("None", https), slices: slices,
			want: "https://demo-n1.default:8443"},
		"headless, no ports": {ls: withPorts("None"), port: "9090", want: "http://demo-n1.default:9090"},
	} {
		port, err := Port(c.ls, c.port)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := URL(c.ls, "n1", port, c.domain, c.slices); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}

	if got, err := URL(withPorts("None", https), "n1", &https, "", nil); !errors.Is(err, ErrEndpointsNeeded) {
		t.Errorf("headless, named targetPort, without EndpointSlices: %q, %v; want %v", got, err, ErrEndpointsNeeded)
	}
}

func TestUnknownPort(t *testing.T) {
	ls := withPorts("", v1alpha1.ServicePort{Name: "http", Port: 80}, v1alpha1.ServicePort{Port: 90})
	for port, want := range map[string]string{
		"x":     "has no port x: choose one of http (80), 90",
		"443":   "has no port 443",
		"0":     "has no port 0",
		"65616": "has no port 65616", // 80 in 16 bits
		"-80":   "has no port -80",
	} {
		if _, err := Port(ls, port); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", port, err, want)
		}
	}
	if _, err := Port(withPorts("None"), ""); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("no ports: %v", err)
	}
}

package plan

import (
	"maps"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// publishedPorts returns an EndpointSlice of the Service demo-a with ports.
func publishedPorts(ports map[string]int32) *apiSlice {
	slice := &apiSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "demo-a"}}}
	for name, number := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
	}
	return slice
}

// TestReadyServices: a Service with a cluster IP answers if a pod is ready, and all ports whose targetPort is a name
// are published. A headless name resolves without ports, too.
func TestReadyServices(t *testing.T) {
	type ports = map[string]int32
	for name, c := range map[string]struct {
		wanted          []string
		published       []ports // in each EndpointSlice
		notAtClusterIPs bool
	}{
		"all":                           {[]string{"http", "metrics"}, []ports{{"metrics": 1, "http": 2}}, false},
		"one without a name":            {[]string{""}, []ports{{"": 1}}, false},
		"none, and none is wanted":      {nil, []ports{nil}, false},
		"none":                          {[]string{""}, []ports{nil}, true},
		"another":                       {[]string{"http"}, []ports{{"": 1}}, true},
		"one of two":                    {[]string{"http", "metrics"}, []ports{{"http": 1}}, true},
		"each at other pods":            {[]string{"http", "metrics"}, []ports{{"http": 1}, {"metrics": 1}}, false},
		"one whose name begins alike":   {[]string{"http"}, []ports{{"http-admin": 1}}, true},
		"another, and one without name": {[]string{""}, []ports{{"http": 1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var published []*apiSlice
			for _, ports := range c.published {
				published = append(published, publishedPorts(ports))
			}
			for _, clusterIP := range []string{"", "None"} {
				ls := localService(func(ls *v1alpha1.LocalService) {
					ls.Spec.ClusterIP, ls.Spec.Ports = clusterIP, nil
					for _, name := range c.wanted {
						ls.Spec.Ports = append(ls.Spec.Ports, v1alpha1.ServicePort{Name: name,
							TargetPort: intstr.FromString("web")})
					}
				})
				want := clusterIP == "None" || !c.notAtClusterIPs
				if got := ReadyServices(ls, published); got["demo-a"] != want || got["demo-b"] {
					t.Errorf("cluster IP %q: %v answer", clusterIP, got)
				}
				for i := range ls.Spec.Ports {
					ls.Spec.Ports[i].TargetPort = intstr.FromInt32(8080)
				}
				if !ReadyServices(ls, published)["demo-a"] {
					t.Errorf("cluster IP %q: does not answer at numbers", clusterIP)
				}
			}
		})
	}
}

// TestPortNumbers: the numbers of named ports come from EndpointSlices, in both modes. Clients of cluster IPs need
// none.
func TestPortNumbers(t *testing.T) {
	published := []*apiSlice{publishedPorts(map[string]int32{"http": 8080, "dns": 53}),
		publishedPorts(map[string]int32{"http": 9090}), publishedPorts(nil)}
	for mode, edit := range map[string]func(ls *v1alpha1.LocalService){
		"Services":  func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "None" },
		"Hostnames": hostnamesMode,
	} {
		ls := localService(edit)
		if got := PortNumbersOf(ls, published); got != nil {
			t.Errorf("%s without a named port: %v", mode, got)
		}
		ls.Spec.Ports = []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}}
		if got := PortNumbersOf(ls, published); !maps.Equal(got, PortNumbers{"http": Differs, "dns": 53}) {
			t.Errorf("%s: %v", mode, got)
		}
		ls.Spec.ClusterIP, ls.Spec.Mode = "", ""
		if got := PortNumbersOf(ls, published); got != nil {
			t.Errorf("%s with a cluster IP: %v", mode, got)
		}
	}
}

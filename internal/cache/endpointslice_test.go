package cache

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestTrimEndpointSlice: an EndpointSlice is ready if one of its endpoints is. Endpoints that do not say are ready.
func TestTrimEndpointSlice(t *testing.T) {
	for name, c := range map[string]struct {
		ready []*bool
		want  bool
	}{
		"no endpoints":  {nil, false},
		"not ready":     {[]*bool{new(false), new(false)}, false},
		"one is ready":  {[]*bool{new(false), new(true)}, true},
		"does not say":  {[]*bool{nil}, true},
		"all are ready": {[]*bool{new(true), new(true)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			full := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "demo-a-x",
				Labels: map[string]string{discoveryv1.LabelServiceName: "demo-a", v1alpha1.OwnerLabelKey: "demo"}}}
			for _, ready := range c.ready {
				full.Endpoints = append(full.Endpoints,
					discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: ready}})
			}
			got, err := trimEndpointSlice(full)
			if err != nil || got.Ready != c.want || got.Service != "demo-a" || got.LocalService().Name != "demo" {
				t.Errorf("%+v, %v, want ready: %v", got, err, c.want)
			}
		})
	}
}

// TestReadyServices: a Service with a cluster IP answers if a pod is ready, and all ports whose targetPort is a name
// are published. A headless name resolves without ports, too.
func TestReadyServices(t *testing.T) {
	ports := func(names ...string) (out []discoveryv1.EndpointPort) {
		for _, name := range names {
			out = append(out, discoveryv1.EndpointPort{Name: &name})
		}
		return out
	}
	for name, c := range map[string]struct {
		wanted          []string
		published       []discoveryv1.EndpointPort
		notAtClusterIPs bool
		others          []string // the ports in another EndpointSlice
	}{
		"all":                           {wanted: []string{"http", "metrics"}, published: ports("metrics", "http")},
		"one without a name":            {wanted: []string{""}, published: ports("")},
		"none, and none is wanted":      {},
		"none":                          {wanted: []string{""}, notAtClusterIPs: true},
		"another":                       {wanted: []string{"http"}, published: ports(""), notAtClusterIPs: true},
		"one of two":                    {[]string{"http", "metrics"}, ports("http"), true, nil},
		"each at other pods":            {[]string{"http", "metrics"}, ports("http"), false, []string{"metrics"}},
		"one whose name begins alike":   {[]string{"http"}, ports("http-admin"), true, nil},
		"another, and one without name": {[]string{""}, ports("http"), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			caches := newCaches(t)
			slice, err := trimEndpointSlice(&discoveryv1.EndpointSlice{Ports: c.published,
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo-a-x",
					Labels: map[string]string{discoveryv1.LabelServiceName: "demo-a", v1alpha1.OwnerLabelKey: "demo"}},
				Endpoints: []discoveryv1.Endpoint{{}}})
			if err != nil {
				t.Fatal(err)
			}
			show(t, caches.EndpointSlices, slice)
			if len(c.others) > 0 { // of other pods
				other := *slice
				other.name, other.ports = "demo-a-y", unique.Make(strings.Join(c.others, "=80,")+"=80,")
				show(t, caches.EndpointSlices, &other)
			}
			for _, clusterIP := range []string{"", "None"} {
				ls := objects.LocalService(func(ls *v1alpha1.LocalService) {
					ls.Spec.ClusterIP, ls.Spec.Ports = clusterIP, nil
					for _, name := range c.wanted {
						ls.Spec.Ports = append(ls.Spec.Ports, v1alpha1.ServicePort{Name: name,
							TargetPort: intstr.FromString("web")})
					}
				})
				want := clusterIP == "None" || !c.notAtClusterIPs
				if got := caches.ReadyServices(ls)["demo-a"]; got != want {
					t.Errorf("cluster IP %q: answers: %v", clusterIP, got)
				}
				for i := range ls.Spec.Ports {
					ls.Spec.Ports[i].TargetPort = intstr.FromInt32(8080)
				}
				if !caches.ReadyServices(ls)["demo-a"] {
					t.Errorf("cluster IP %q: does not answer at numbers", clusterIP)
				}
			}
		})
	}
}

// TestPortNumbers: the numbers of named ports come from EndpointSlices, in both modes. Clients of cluster IPs need
// none.
func TestPortNumbers(t *testing.T) {
	c := newCaches(t)
	for i, ports := range []map[string]int32{{"http": 8080, "dns": 53}, {"http": 9090}, {}} {
		full := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name:   fmt.Sprint("demo-", i),
			Labels: map[string]string{discoveryv1.LabelServiceName: "demo-a", v1alpha1.OwnerLabelKey: "demo"}},
			Endpoints: []discoveryv1.Endpoint{{}}}
		for name, number := range ports {
			full.Ports = append(full.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
		}
		slice, err := trimEndpointSlice(full)
		full.Name, full.Labels[v1alpha1.OwnerLabelKey] = "names-"+full.Name, "names"
		named, nameErr := trimHostnameSlice(full)
		if err := errors.Join(err, nameErr); err != nil {
			t.Fatal(err)
		}
		show(t, c.EndpointSlices, slice)
		show(t, c.HostnameSlices, named)
	}
	for name, edit := range map[string]func(ls *v1alpha1.LocalService){
		"demo":  func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "None" },
		"names": func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames }} {
		ls := objects.LocalService(edit)
		ls.Name = name
		if got := c.PortNumbers(ls); got != nil {
			t.Errorf("%s without a named port: %v", name, got)
		}
		ls.Spec.Ports = []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}}
		if got := c.PortNumbers(ls); len(got) != 2 || got["http"] != plan.Differs || got["dns"] != 53 {
			t.Errorf("%s: %v", name, got)
		}
		ls.Spec.ClusterIP, ls.Spec.Mode = "", ""
		if got := c.PortNumbers(ls); got != nil {
			t.Errorf("%s with a cluster IP: %v", name, got)
		}
	}
}

// TestEndpointSlicesOf: a LocalService has the EndpointSlices of its namespace that name it.
func TestEndpointSlicesOf(t *testing.T) {
	c := newCaches(t)
	for _, namespace := range []string{"default", "other"} {
		full := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: namespace, v1alpha1.OwnerLabelKey: "demo"}},
			Endpoints: []discoveryv1.Endpoint{{}}}
		slice, err := trimEndpointSlice(full)
		named, nameErr := trimHostnameSlice(full)
		if err := errors.Join(err, nameErr); err != nil {
			t.Fatal(err)
		}
		show(t, c.EndpointSlices, slice)
		show(t, c.HostnameSlices, named)
	}
	ls := objects.LocalService()
	if ready := c.ReadyServices(ls); len(ready) != 1 || !ready["default"] {
		t.Errorf("ready: %v", ready)
	}
	if named := c.HostnameSlicesOf(KeyOf(ls)); len(named) != 1 || named["of-default"] == nil {
		t.Errorf("of mode Hostnames: %v", named)
	}
}

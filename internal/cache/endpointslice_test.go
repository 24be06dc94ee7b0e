package cache

import (
	"errors"
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// showSlice adds an EndpointSlice to the cache of its mode.
func showSlice(t *testing.T, c *Caches, full *discoveryv1.EndpointSlice) {
	t.Helper()
	slice, err := trimEndpointSlice(full)
	named, nameErr := trimHostnameSlice(full)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	if full.Labels[v1alpha1.HostnamesLabelKey] == "" {
		show(t, c.EndpointSlices, slice)
	} else {
		show(t, c.HostnameSlices, named)
	}
}

// TestTrimEndpointSlice: an EndpointSlice is ready if one of its endpoints is. Endpoints that do not say are ready. With
// publishNotReadyAddresses all are, and only the other condition says whether the pod is.
func TestTrimEndpointSlice(t *testing.T) {
	type conditions = discoveryv1.EndpointConditions
	for name, c := range map[string]struct {
		endpoints []conditions
		want      bool
	}{
		"no endpoints":             {nil, false},
		"not ready":                {[]conditions{{Ready: new(false)}, {Ready: new(false)}}, false},
		"one is ready":             {[]conditions{{Ready: new(false)}, {Ready: new(true)}}, true},
		"does not say":             {[]conditions{{}}, true},
		"published, and not ready": {[]conditions{{Ready: new(true), Serving: new(false)}}, false},
		"published, and ready":     {[]conditions{{Ready: new(true), Serving: new(true)}}, true},
	} {
		slice := objects.EndpointSlice("demo-a")
		for _, e := range c.endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: e})
		}
		trimmed, err := trimEndpointSlice(slice)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s of %s, ready: %t", trimmed.Service, trimmed.LocalService().Name, trimmed.Ready)
		if want := fmt.Sprintf("demo-a of demo, ready: %t", c.want); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

// TestReadyServices: a Service with a cluster IP answers if a pod is ready, and all ports whose targetPort is a name
// are published. A headless name resolves without ports, too.
func TestReadyServices(t *testing.T) {
	for name, c := range map[string]struct {
		wanted          []string
		published       [][]string // in each EndpointSlice
		notAtClusterIPs bool
	}{
		"all":                           {[]string{"http", "metrics"}, [][]string{{"metrics", "http"}}, false},
		"one without a name":            {[]string{""}, [][]string{{""}}, false},
		"none, and none is wanted":      {nil, [][]string{nil}, false},
		"none":                          {[]string{""}, [][]string{nil}, true},
		"another":                       {[]string{"http"}, [][]string{{""}}, true},
		"one of two":                    {[]string{"http", "metrics"}, [][]string{{"http"}}, true},
		"each at other pods":            {[]string{"http", "metrics"}, [][]string{{"http"}, {"metrics"}}, false},
		"one whose name begins alike":   {[]string{"http"}, [][]string{{"http-admin"}}, true},
		"another, and one without name": {[]string{""}, [][]string{{"http"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			caches := newCaches(t)
			for i, ports := range c.published {
				slice := objects.EndpointSlice("demo-a", "a")
				slice.Name, slice.Ports = fmt.Sprint("demo-a-", i), nil
				for _, port := range ports {
					slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port})
				}
				showSlice(t, caches, slice)
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
	for mode, edit := range map[string]func(ls *v1alpha1.LocalService){
		"":          func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "None" },
		"Hostnames": objects.HostnamesMode,
	} {
		c, ls := newCaches(t), objects.LocalService(edit)
		for i, ports := range []map[string]int32{{"http": 8080, "dns": 53}, {"http": 9090}, {}} {
			slice := objects.EndpointSlice("demo-a", "a")
			slice.Name, slice.Ports = fmt.Sprint("demo-", i), nil
			slice.Labels[v1alpha1.HostnamesLabelKey] = mode
			for name, number := range ports {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
			}
			showSlice(t, c, slice)
		}
		if got := c.PortNumbers(ls); got != nil {
			t.Errorf("%q without a named port: %v", mode, got)
		}
		ls.Spec.Ports = []v1alpha1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}}
		if got := c.PortNumbers(ls); len(got) != 2 || got["http"] != plan.Differs || got["dns"] != 53 {
			t.Errorf("%q: %v", mode, got)
		}
		ls.Spec.ClusterIP, ls.Spec.Mode = "", ""
		if got := c.PortNumbers(ls); got != nil {
			t.Errorf("%q with a cluster IP: %v", mode, got)
		}
	}
}

// TestEndpointSlicesOf: a LocalService has the EndpointSlices of its namespace that name it.
func TestEndpointSlicesOf(t *testing.T) {
	c := newCaches(t)
	for _, namespace := range []string{"default", "other"} {
		slice := objects.EndpointSlice("demo-"+namespace, "a")
		slice.Namespace = namespace
		showSlice(t, c, slice)
		slice.Labels[v1alpha1.HostnamesLabelKey] = v1alpha1.HostnamesSource
		showSlice(t, c, slice)
	}
	ls := objects.LocalService()
	if ready := c.ReadyServices(ls); len(ready) != 1 || !ready["demo-default"] {
		t.Errorf("ready: %v", ready)
	}
	if named := c.HostnameSlicesOf(KeyOf(ls)); len(named) != 1 || named["demo-default-x"] == nil {
		t.Errorf("of mode Hostnames: %v", named)
	}
}

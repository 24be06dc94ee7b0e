package plan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// patched returns the patch for the Service of a node, and the Service to which the API server merges it.
func patched(t *testing.T, tmpl *Template, live *corev1.Service, node string) (string, *corev1.Service) {
	t.Helper()
	patch, err := tmpl.Patch(live, node)
	if err != nil {
		t.Fatalf("patch %s: %v", live.Name, err)
	}
	before, err := json.Marshal(live)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		t.Fatalf("apply %s: %v", patch, err)
	}
	service := &corev1.Service{}
	if err := json.Unmarshal(merged, service); err != nil {
		t.Fatal(err)
	}
	out := stored(service)
	out.UID = live.UID
	return string(patch), out
}

func TestService(t *testing.T) {
	got := template(t, localService()).Service("node2")
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "demo-node2",
			Namespace:   "default",
			Labels:      map[string]string{"owner": "demo", "vm/rack": "node2"},
			Annotations: map[string]string{"localservice.dev/node": "node2"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "localservice.dev/v1alpha1", Kind: "LocalService",
				Name: "demo", UID: "uid-demo",
				Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: "None",
			Selector:  map[string]string{"app": "demo", "vm/rack": "node2"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8080, Protocol: "TCP",
				TargetPort: intstr.FromInt32(8080)}},
			SessionAffinity:       corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong Service (-want +got):\n%s", diff)
	}
}

// TestServicePorts: what a port of a LocalService is on its Services, with the API server's defaults.
func TestServicePorts(t *testing.T) {
	for name, c := range map[string]struct {
		in   v1alpha1.ServicePort
		want corev1.ServicePort
	}{
		"number only": {v1alpha1.ServicePort{Port: 80},
			corev1.ServicePort{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)}},
		"empty target port": {v1alpha1.ServicePort{Port: 80, TargetPort: intstr.FromString("")},
			corev1.ServicePort{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)}},
		"target port": {v1alpha1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(8080)},
			corev1.ServicePort{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(8080)}},
		"everything set": {v1alpha1.ServicePort{Name: "dns", Port: 53, Protocol: "UDP", AppProtocol: new("dns"),
			TargetPort: intstr.FromString("dns-udp")},
			corev1.ServicePort{Name: "dns", Port: 53, Protocol: "UDP", AppProtocol: new("dns"),
				TargetPort: intstr.FromString("dns-udp")}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, servicePort(&c.in)); diff != "" {
				t.Errorf("wrong port (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSessionAffinity: clients stick to a pod for three hours unless the LocalService says otherwise.
func TestSessionAffinity(t *testing.T) {
	for name, want := range map[string]*int32{
		"headless":                  nil,
		"session affinity":          new(int32(10800)),
		"session affinity, timeout": new(int32(60)),
	} {
		var got *int32
		if c := template(t, localService(specs[name])).Service("node2").Spec.SessionAffinityConfig; c != nil {
			got = c.ClientIP.TimeoutSeconds
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("timeout of %q (-want +got):\n%s", name, diff)
		}
	}
}

// TestEveryFieldSettles: a Service is in place as the API server stores it after creation. A Service of any other spec
// reaches this spec by one write, and then nothing else is written.
func TestEveryFieldSettles(t *testing.T) {
	for _, from := range specNames() {
		for _, to := range specNames() {
			before, after := template(t, localService(specs[from])), template(t, localService(specs[to]))
			live := stored(before.Service("node2"))
			if action := actionOn(before, live, "node2"); action != "" {
				t.Fatalf("%s: %s right after creation: %s", from, action, mismatches(before, live))
			}
			action, found := after.actionOn(live, "node2", after.wantFor("node2"))
			// A family that is no longer requested stays: we cannot know which one the API server would choose.
			if (action == "") != (from == to || from == "IPv6" && to == "cluster IP") {
				t.Errorf("from %q to %q: action %q", from, to, action)
			}
			switch {
			case found.immutable != "": // As somebody has deleted and recreated it.
				live = stored(after.Service("node2"))
			case action == Update:
				_, live = patched(t, after, live, "node2")
			}
			if action := actionOn(after, live, "node2"); action != "" {
				t.Errorf("from %q to %q: %s again after the first write: %s", from, to, action, mismatches(after, live))
			}
		}
	}
}

func mismatches(t *Template, live *corev1.Service) string {
	return strings.Join(t.Mismatches(live, live.Annotations[v1alpha1.NodeAnnotationKey]), ", ")
}

// TestEveryFieldDrift: drift in any field that the spec decides is detected, and repaired by a patch that names nothing
// else.
func TestEveryFieldDrift(t *testing.T) {
	for name, c := range map[string]struct {
		spec  string
		drift func(*corev1.Service)
		patch string
	}{
		"selector": {"headless", func(s *corev1.Service) { s.Spec.Selector["app"] = "x" },
			`{"spec":{"selector":{"app":"demo"}}}`},
		"node in the selector": {"headless", func(s *corev1.Service) { s.Spec.Selector["vm/rack"] = "node1" },
			`{"spec":{"selector":{"vm/rack":"node2"}}}`},
		"selector added": {"headless", func(s *corev1.Service) { s.Spec.Selector["x"] = "y" },
			`{"spec":{"selector":{"x":null}}}`},
		"selector gone": {"headless", func(s *corev1.Service) { s.Spec.Selector = nil },
			`{"spec":{"selector":{"app":"demo","vm/rack":"node2"}}}`},
		"owner label": {"headless", func(s *corev1.Service) { delete(s.Labels, "owner") },
			`{"metadata":{"labels":{"owner":"demo"}}}`},
		"node label": {"headless", func(s *corev1.Service) { s.Labels["vm/rack"] = "x" },
			`{"metadata":{"labels":{"vm/rack":"node2"}}}`},
		"labels gone": {"headless", func(s *corev1.Service) { s.Labels = nil },
			`{"metadata":{"labels":{"owner":"demo","vm/rack":"node2"}}}`},
		"annotations gone": {"headless", func(s *corev1.Service) { s.Annotations = nil },
			`{"metadata":{"annotations":{"localservice.dev/node":"node2"}}}`},
		"a label of serviceMetadata": {"metadata", func(s *corev1.Service) { s.Labels["team"] = "b" },
			`{"metadata":{"labels":{"team":"a"}}}`},
		"record of metadata": {"metadata", func(s *corev1.Service) {
			s.Annotations[v1alpha1.AppliedMetadataAnnotationKey] = "}{"
		},
			`{"metadata":{"annotations":{"localservice.dev/applied-metadata":` +
				`"{\"labels\":[\"team\",\"tier\"],\"annotations\":[\"external-dns.example.com/ttl\"]}"}}}`},
		"port": {"headless", func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 },
			`{"spec":{"ports":[{"name":"http","port":8080,"protocol":"TCP","targetPort":8080}]}}`},
		"target port keeps the node port": {"node port", func(s *corev1.Service) {
			s.Spec.Ports[0].TargetPort = intstr.FromString("x")
		},
			`{"spec":{"ports":[{"name":"http","nodePort":30000,"port":8080,"protocol":"TCP","targetPort":8080}]}}`},
		"node ports that are not to be allocated any more": {"load balancer, everything set", func(s *corev1.Service) {
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = new(true), 30000
		}, `{"spec":{"allocateLoadBalancerNodePorts":false,"ports":[{"name":"http","port":8080,"protocol":"TCP",` +
			`"targetPort":8080}]}}`},
		"type": {"cluster IP", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort,
				corev1.ServiceExternalTrafficPolicyCluster, 30000
		}, `{"spec":{"externalTrafficPolicy":null,"ports":[{"name":"http","port":8080,"protocol":"TCP",` +
			`"targetPort":8080}],"type":"ClusterIP"}}`},
		"external name": {"headless", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.ExternalName = corev1.ServiceTypeExternalName,
				"", nil, "example.com"
		}, `{"spec":{"clusterIP":"None","externalName":null,"type":"ClusterIP"}}`},
		"not ready addresses": {"headless", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
			`{"spec":{"publishNotReadyAddresses":null}}`},
		"traffic distribution": {"headless", func(s *corev1.Service) {
			s.Spec.TrafficDistribution = new("PreferClose")
		},
			`{"spec":{"trafficDistribution":null}}`},
		"affinity": {"headless", func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			clients := &corev1.ClientIPConfig{TimeoutSeconds: new(int32(1))}
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: clients}
		}, `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`},
		"dual stack": {"cluster IP", func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
			s.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"}
			s.Spec.ClusterIPs = []string{"10.96.0.7", "fd00::7"}
		}, `{"spec":{"clusterIPs":["10.96.0.7"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}}`},
		"families gone": {"IPv6", func(s *corev1.Service) { s.Spec.IPFamilies = nil },
			`{"spec":{"ipFamilies":["IPv6"]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, localService(specs[c.spec]))
			live := stored(tmpl.Service("node2"))
			c.drift(live)
			if action := actionOn(tmpl, live, "node2"); action != Update {
				t.Fatalf("action %q, want %q", action, Update)
			}
			patch, after := patched(t, tmpl, live, "node2")
			// Each patch has the resource version.
			rest := strings.NewReplacer(`"metadata":{"resourceVersion":"7"},`, "", `,"resourceVersion":"7"`, "")
			if got := rest.Replace(patch); got != c.patch || got == patch {
				t.Errorf("patch %s\n want %s", patch, c.patch)
			}
			if action := actionOn(tmpl, after, "node2"); action != "" {
				t.Errorf("%s again after the patch", action)
			}
		})
	}
}

// TestEveryFieldOfOthers: what others write, and what the API server allocates, never causes a write.
func TestEveryFieldOfOthers(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Service){
		"labels":      func(s *corev1.Service) { s.Labels["x"] = "y" },
		"annotations": func(s *corev1.Service) { s.Annotations["cloud.example.com/lb"] = "7" },
		"finalizers":  func(s *corev1.Service) { s.Finalizers = []string{"service.kubernetes.io/lb-cleanup"} },
		"status":      func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} },
		"cluster IP": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.9.9",
				[]string{"10.96.9.9"}
		},
		"node ports": func(s *corev1.Service) {
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = 32000 + int32(i)
			}
		},
		"health check": func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 32001 },
		"external IPs": func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} },
		"other owners": func(s *corev1.Service) {
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{Kind: "X", Name: "x", UID: "x"})
		},
		"order of ports": func(s *corev1.Service) {
			s.Spec.Ports[0], s.Spec.Ports[1] = s.Spec.Ports[1], s.Spec.Ports[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, localService(specs["load balancer, everything set"], func(ls *v1alpha1.LocalService) {
				ls.Spec.Ports = append(ls.Spec.Ports, v1alpha1.ServicePort{Name: "metrics", Port: 9090},
					v1alpha1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 9090})
			}))
			live := stored(tmpl.Service("node2"))
			edit(live)
			if action := actionOn(tmpl, live, "node2"); action != "" {
				t.Errorf("%s because of %s", action, mismatches(tmpl, live))
			}
		})
	}
	// An API server sets externalTrafficPolicy if somebody has added external IPs to a Service of type ClusterIP.
	tmpl := template(t, localService(specs["cluster IP"]))
	live := stored(tmpl.Service("node2"))
	live.Spec.ExternalIPs, live.Spec.ExternalTrafficPolicy = []string{"192.0.2.1"},
		corev1.ServiceExternalTrafficPolicyCluster
	if action := actionOn(tmpl, live, "node2"); action != "" {
		t.Errorf("%s because of %s", action, mismatches(tmpl, live))
	}
}

// TestEveryFieldServiceMetadata: keys removed from spec.serviceMetadata are deleted, those that others have set stay.
func TestEveryFieldServiceMetadata(t *testing.T) {
	live := stored(template(t, localService(specs["metadata"])).Service("node2"))
	live.Labels["theirs"], live.Annotations["theirs"] = "x", "y"
	after := template(t, localService(specs["metadata"], func(ls *v1alpha1.LocalService) {
		delete(ls.Spec.ServiceMetadata.Labels, "team")
		ls.Spec.ServiceMetadata.Annotations = nil
	}))
	_, got := patched(t, after, live, "node2")
	wantLabels := map[string]string{"owner": "demo", "vm/rack": "node2", "tier": "cache", "theirs": "x"}
	wantAnnotations := map[string]string{"localservice.dev/node": "node2",
		"localservice.dev/applied-metadata": `{"labels":["tier"]}`, "theirs": "y"}
	if diff := cmp.Diff(wantLabels, got.Labels) + cmp.Diff(wantAnnotations, got.Annotations); diff != "" {
		t.Errorf("wrong metadata (-want +got):\n%s", diff)
	}
	none := template(t, localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{}
	}))
	_, got = patched(t, none, got, "node2")
	if diff := cmp.Diff(map[string]string{"owner": "demo", "vm/rack": "node2", "theirs": "x"}, got.Labels) +
		cmp.Diff(map[string]string{"localservice.dev/node": "node2", "theirs": "y"}, got.Annotations); diff != "" {
		t.Errorf("wrong metadata without serviceMetadata (-want +got):\n%s", diff)
	}
}

// TestNodeAnnotation: a Service that belongs to no node loses the annotation that names one.
func TestNodeAnnotation(t *testing.T) {
	tmpl := template(t, localService(hostnamesMode))
	live := stored(tmpl.Service(""))
	live.Annotations[v1alpha1.NodeAnnotationKey] = "a"
	if action := actionOn(tmpl, live, ""); action != Update {
		t.Fatalf("%s, want an update", action)
	}
	if _, after := patched(t, tmpl, live, ""); actionOn(tmpl, after, "") != "" || NodeOf(after) != "" {
		t.Errorf("not in place afterwards: %v", after.Annotations)
	}
}

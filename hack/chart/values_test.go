package chart

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/dump"
)

// TestValues renders the chart with each of its values, and looks at what it changes.
func TestValues(t *testing.T) {
	container := func(t *testing.T, all objects) corev1.Container {
		return find[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0]
	}
	secure := []string{"ClusterRole " + name + "-metrics-auth", "ClusterRoleBinding " + name + "-metrics-auth",
		"ClusterRole " + name + "-metrics-reader"}
	guard := func(policies ...string) (keys []string) {
		for _, policy := range policies {
			for _, kind := range []string{"ValidatingAdmissionPolicy ", "ValidatingAdmissionPolicyBinding "} {
				keys = append(keys, kind+name+"-guard-"+policy)
			}
		}
		return keys
	}
	tests := map[string]struct {
		values      string
		more, fewer []string // objects, beside the default ones
		check       func(t *testing.T, all objects)
	}{
		"without CustomResourceDefinition": {
			values: "crds: {install: false}",
			fewer:  []string{"CustomResourceDefinition localservices.localservice.dev"},
		},
		"without roles for users": {
			values: "rbac: {aggregate: false}",
			fewer:  []string{"ClusterRole " + name + "-edit", "ClusterRole " + name + "-view"},
		},
		"without disruption budget": {
			values: "podDisruptionBudget: {enabled: false}",
			fewer:  []string{"PodDisruptionBudget " + name},
		},
		"disruption budget": {
			values: "podDisruptionBudget: {maxUnavailable: 50%}",
			check: func(t *testing.T, all objects) {
				equal(t, "50%", find[*policyv1.PodDisruptionBudget](t, all).Spec.MaxUnavailable.String())
			},
		},
		"without hostnames": {
			values: "hostnames: {enabled: false}",
			fewer: append(guard("endpointslices"), "ClusterRole "+name+"-hostnames",
				"ClusterRoleBinding "+name+"-hostnames"),
		},
		"without guard": {
			values: "guard: {enabled: false}",
			fewer:  guard("pods", "services", "endpointslices"),
			check: func(t *testing.T, all objects) {
				equal(t, []string{"-guard=false"}, container(t, all).Args)
			},
		},
		"without pods": {
			values: "pods: {enabled: false}",
			fewer:  guard("pods"),
			check: func(t *testing.T, all objects) {
				equal(t, []string{"-label-pods=false"}, container(t, all).Args)
				rules := find[*rbacv1.ClusterRole](t, objects{"": all["ClusterRole "+name]}).Rules
				if text := dump.Pretty(rules); strings.Contains(text, "pods") || strings.Contains(text, "jobs") {
					t.Errorf("the role has more than it needs: %s", text)
				}
			},
		},
		"namespaces": {
			values: "namespaces: [a, " + namespace + "]",
			fewer:  []string{"ClusterRole " + name + "-hostnames", "ClusterRoleBinding " + name + "-hostnames"},
			more: []string{"Role a/" + name + "-namespaced", "RoleBinding a/" + name + "-namespaced",
				"Role a/" + name + "-hostnames", "RoleBinding a/" + name + "-hostnames",
				"Role " + name + "-namespaced", "RoleBinding " + name + "-namespaced",
				"Role " + name + "-hostnames", "RoleBinding " + name + "-hostnames"},
			check: func(t *testing.T, all objects) {
				whole := render(t, name, "")
				role := func(key string) *rbacv1.Role { return find[*rbacv1.Role](t, objects{key: all[key]}) }
				// Otherwise the ClusterRole has what each namespace grants, too.
				rules := slices.Concat(role("Role a/"+name+"-namespaced").Rules,
					find[*rbacv1.ClusterRole](t, objects{"": all["ClusterRole "+name]}).Rules)
				equal(t, find[*rbacv1.ClusterRole](t, objects{"": whole["ClusterRole "+name]}).Rules, rules)
				equal(t, find[*rbacv1.ClusterRole](t, objects{"": whole["ClusterRole "+name+"-hostnames"]}).Rules,
					role("Role a/"+name+"-hostnames").Rules)
				for _, what := range []string{"namespaced", "hostnames"} {
					binding := find[*rbacv1.RoleBinding](t, objects{"": all["RoleBinding a/"+name+"-"+what]})
					equal(t, name+"-"+what, binding.RoleRef.Name)
					equal(t, namespace, binding.Subjects[0].Namespace)
					equal(t, name, binding.Subjects[0].Name)
				}
				equal(t, []string{"-namespaces=a," + namespace}, container(t, all).Args)
			},
		},
		"admission": {
			values: "admission: {enabled: true}",
			more:   policies(t),
		},
		"admission for another label and another name": {
			values: "{admission: {enabled: true}, flags: {node-label-key: example.com/node}, fullnameOverride: other}",
			more:   policies(t),
			check: func(t *testing.T, all objects) {
				maps.DeleteFunc(all, func(key string, _ runtime.Object) bool {
					return !strings.Contains(key, "Admission")
				})
				if strings.Contains(dump.Pretty(all), "vm/rack") {
					t.Error("the policies still have vm/rack")
				}
				guard := find[*admissionv1.ValidatingAdmissionPolicy](t, all, "local-service-node-label-guard")
				equal(t, "['system:serviceaccount:"+namespace+":other']", guard.Spec.Variables[1].Expression)
			},
		},
		"metrics Service": {
			values: "metrics: {service: {enabled: true, annotations: {a: b}}}",
			more:   []string{"Service " + name + "-metrics"},
			check: func(t *testing.T, all objects) {
				service := find[*corev1.Service](t, all)
				port := container(t, all).Ports[0]
				equal(t, port.ContainerPort, service.Spec.Ports[0].Port) // A headless Service leads to no other.
				equal(t, port.Name, service.Spec.Ports[0].TargetPort.StrVal)
				equal(t, map[string]string{"a": "b"}, service.Annotations)
			},
		},
		"ServiceMonitor": {
			values: "metrics: {service: {enabled: true}, serviceMonitor: {enabled: true, labels: {a: b}, " +
				"interval: 30s, metricRelabelings: [{action: drop, regex: go_.*, sourceLabels: [__name__]}]}}",
			more: []string{"Service " + name + "-metrics", "ServiceMonitor " + name},
			check: func(t *testing.T, all objects) {
				monitor := find[*monitoringv1.ServiceMonitor](t, all)
				endpoint := monitor.Spec.Endpoints[0]
				equal(t, find[*corev1.Service](t, all).Spec.Ports[0].Name, endpoint.Port)
				equal(t, monitoringv1.Duration("30s"), endpoint.Interval)
				equal(t, "drop", endpoint.MetricRelabelConfigs[0].Action)
				equal(t, "b", monitor.Labels["a"])
				equal(t, true, endpoint.HonorLabels)
				equal(t, name, find[*corev1.Service](t, all).Labels[monitor.Spec.JobLabel]) // as the rules select
			},
		},
		"dashboard": {
			values: "dashboard: {enabled: true, annotations: {grafana_folder: Kubernetes}}",
			more:   []string{"ConfigMap " + name + "-dashboard"},
			check: func(t *testing.T, all objects) {
				dashboard := find[*corev1.ConfigMap](t, all)
				equal(t, map[string]string{"grafana_folder": "Kubernetes"}, dashboard.Annotations)
				equal(t, "1", dashboard.Labels["grafana_dashboard"])
				want := must(os.ReadFile("../../artifacts/dashboards/" + name + ".json"))
				equal(t, map[string]string{name + ".json": string(want)}, dashboard.Data)
			},
		},
		"secure metrics": {
			values: "metrics: {secure: {enabled: true}, service: {enabled: true}, serviceMonitor: {enabled: true}}",
			more:   slices.Concat(secure, []string{"Service " + name + "-metrics", "ServiceMonitor " + name}),
			check: func(t *testing.T, all objects) {
				binding := find[*rbacv1.ClusterRoleBinding](t, all, name+"-metrics-auth")
				equal(t, name+"-metrics-auth", binding.RoleRef.Name)
				equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: namespace}}, binding.Subjects)
				equal(t, []string{"-metrics-secure-address=:8443"}, container(t, all).Args)
				port := container(t, all).Ports[1]
				equal(t, int32(8443), port.ContainerPort)
				service := find[*corev1.Service](t, all).Spec.Ports[0]
				equal(t, port.ContainerPort, service.Port)
				equal(t, port.Name, service.TargetPort.StrVal)
				endpoint := find[*monitoringv1.ServiceMonitor](t, all).Spec.Endpoints[0]
				equal(t, service.Name, endpoint.Port)
				equal(t, "https", string(*endpoint.Scheme))
				equal(t, true, *endpoint.TLSConfig.InsecureSkipVerify)
			},
		},
		"secure metrics with a certificate": {
			values: "{metrics: {secure: {enabled: true, certificateSecret: tls}, service: {enabled: true}, " +
				"serviceMonitor: {enabled: true, tlsConfig: {serverName: lsc}}}, networkPolicy: {enabled: true}}",
			more: slices.Concat(secure, []string{"Service " + name + "-metrics", "ServiceMonitor " + name,
				"NetworkPolicy " + name}),
			check: func(t *testing.T, all objects) {
				spec := find[*appsv1.Deployment](t, all).Spec.Template.Spec
				mount := container(t, all).VolumeMounts[0]
				equal(t, []string{"-metrics-secure-address=:8443", "-metrics-tls-cert-file=" + mount.MountPath +
					"/tls.crt",
					"-metrics-tls-key-file=" + mount.MountPath + "/tls.key"}, container(t, all).Args)
				equal(t, mount.Name, spec.Volumes[0].Name)
				equal(t, "tls", spec.Volumes[0].Secret.SecretName)
				config := find[*monitoringv1.ServiceMonitor](t, all).Spec.Endpoints[0].TLSConfig
				equal(t, "lsc", *config.ServerName)
				equal(t, true, config.InsecureSkipVerify == nil)
				equal(t, container(t, all).Ports[1].Name,
					find[*networkingv1.NetworkPolicy](t, all).Spec.Ingress[0].Ports[0].Port.StrVal)
			},
		},
		"NetworkPolicy": {
			values: "networkPolicy: {enabled: true, apiServerPorts: [6443], metricsFrom: [{namespaceSelector: {}}]}",
			more:   []string{"NetworkPolicy " + name},
			check: func(t *testing.T, all objects) {
				spec := find[*networkingv1.NetworkPolicy](t, all).Spec
				equal(t, 6443, spec.Egress[0].Ports[0].Port.IntValue())
				equal(t, container(t, all).Ports[0].Name, spec.Ingress[0].Ports[0].Port.StrVal)
				equal(t, 1, len(spec.Ingress[0].From))
				equal(t, 2, len(spec.PolicyTypes))
			},
		},
		"image": {
			values: "image: {repository: registry.example.com/lsc, tag: v1.2.3, pullPolicy: Always}",
			check: func(t *testing.T, all objects) {
				equal(t, "registry.example.com/lsc:v1.2.3", container(t, all).Image)
				equal(t, corev1.PullAlways, container(t, all).ImagePullPolicy)
			},
		},
		"image by digest": {
			values: "image: {repository: lsc, tag: v1, digest: 'sha256:" + strings.Repeat("0", 64) + "'}",
			check: func(t *testing.T, all objects) {
				equal(t, "lsc@sha256:"+strings.Repeat("0", 64), container(t, all).Image)
			},
		},
		"flags": {
			values: "flags: {v: 2, logging-format: json, workers: 5000000, " +
				"label-all-pods: true}",
			check: func(t *testing.T, all objects) {
				equal(t, []string{
					"-label-all-pods=true", "-logging-format=json", "-v=2", "-workers=5000000",
				}, container(t, all).Args)
			},
		},
		"lease": {
			values: "leaderElection: {leaseDuration: 30s}",
			check: func(t *testing.T, all objects) {
				equal(t, []string{"-leader-election-lease-duration=30s"}, container(t, all).Args)
			},
		},
		"one replica": {
			values: "{replicas: 1, leaderElection: {enabled: false}}",
			check: func(t *testing.T, all objects) {
				equal(t, []string{"-leader-elect=false"}, container(t, all).Args)
				deployment := find[*appsv1.Deployment](t, all)
				equal(t, int32(1), *deployment.Spec.Replicas)
				equal(t, appsv1.RecreateDeploymentStrategyType, deployment.Spec.Strategy.Type)
			},
		},
		"pods": {
			values: `
priorityClassName: mine
nodeSelector: {disk: ssd}
tolerations: [{key: control-plane, operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{topologyKey: zone, maxSkew: 2, whenUnsatisfiable: DoNotSchedule}]
resources: {requests: {memory: 128Mi}, limits: {memory: 1Gi}}
imagePullSecrets: [{name: secret}]
podLabels: {a: b}
podAnnotations: {c: d}
commonLabels: {e: f}
serviceAccount: {annotations: {g: h}}
`,
			fewer: []string{"ResourceQuota " + name},
			check: func(t *testing.T, all objects) {
				template := find[*appsv1.Deployment](t, all).Spec.Template
				equal(t, "mine", template.Spec.PriorityClassName)
				equal(t, map[string]string{"disk": "ssd", "kubernetes.io/os": "linux"}, template.Spec.NodeSelector)
				equal(t, "control-plane", template.Spec.Tolerations[0].Key)
				equal(t, true, template.Spec.Affinity.NodeAffinity != nil)
				equal(t, 1, len(template.Spec.TopologySpreadConstraints))
				equal(t, "zone", template.Spec.TopologySpreadConstraints[0].TopologyKey)
				equal(t, "secret", template.Spec.ImagePullSecrets[0].Name)
				equal(t, "1Gi", template.Spec.Containers[0].Resources.Limits.Memory().String())
				equal(t, "b", template.Labels["a"])
				equal(t, "d", template.Annotations["c"])
				equal(t, "h", find[*corev1.ServiceAccount](t, all).Annotations["g"])
				for key, object := range all {
					if accessor, err := meta.Accessor(object); err != nil || accessor.GetLabels()["e"] != "f" {
						t.Errorf("%s lacks the common label (%v)", key, err)
					}
				}
			},
		},
		"pods without any choice": {
			values: "{priorityClassName: '', topologySpreadConstraints: [], resources: {requests: null}}",
			fewer:  []string{"ResourceQuota " + name},
			check: func(t *testing.T, all objects) {
				spec := find[*appsv1.Deployment](t, all).Spec.Template.Spec
				equal(t, "", spec.PriorityClassName)
				equal(t, 0, len(spec.TopologySpreadConstraints))
				equal(t, 0, len(spec.Containers[0].Resources.Requests))
			},
		},
	}
	standard := keys(render(t, name, ""))
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			all := render(t, name, test.values)
			checkLabels(t, all)
			if !strings.Contains(test.values, "fullnameOverride") {
				want := slices.DeleteFunc(slices.Concat(standard, test.more),
					func(key string) bool { return slices.Contains(test.fewer, key) })
				slices.Sort(want)
				equal(t, want, keys(all))
			}
			if test.check != nil {
				test.check(t, all)
			}
		})
	}
}

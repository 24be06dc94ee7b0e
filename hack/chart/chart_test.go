// Package chart tests the Helm chart, with Helm 3 and Helm 4 as libraries: no cluster is needed.
package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	lint3 "helm.sh/helm/v3/pkg/lint"
	lint4 "helm.sh/helm/v4/pkg/chart/v2/lint"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestDefaultsAreTheManifests compares the default rendering with artifacts/deploy, so that the two cannot drift apart.
// Names of roles for users and labels may differ: what the controller may do, and how it runs, may not.
func TestDefaultsAreTheManifests(t *testing.T) {
	want := decodeFiles(t, "../../artifacts/deploy/local-service-controller.yaml",
		"../../artifacts/deploy/hostnames.yaml", "../../artifacts/examples/crd.yaml")
	delete(want, "Namespace "+namespace) // `helm install --create-namespace` makes it
	for _, role := range []string{"edit", "view"} {
		old := "ClusterRole local-service-" + role
		want["ClusterRole "+name+"-"+role] = want[old]
		delete(want, old)
	}
	forEveryHelm(t, func(t *testing.T, helm string) {
		got := mustRender(t, helm, "")
		checkLabels(t, got)
		if diff := cmp.Diff(keys(want), keys(got)); diff != "" {
			t.Errorf("the objects are not those of artifacts/deploy (-want, +got):\n%s", diff)
		}
		for key, object := range got {
			if diff := cmp.Diff(comparable(want[key]), comparable(object)); diff != "" {
				t.Errorf("%s is not that of artifacts/deploy (-want, +got):\n%s", key, diff)
			}
		}
		crd := find[*apiextensionsv1.CustomResourceDefinition](t, got)
		if crd.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Error("an uninstall would delete the CustomResourceDefinition, and with it all LocalServices")
		}
	})
}

// comparable is a copy of an object without its labels, but for those that aggregate roles.
func comparable(object runtime.Object) runtime.Object {
	if object == nil {
		return nil
	}
	object = object.DeepCopyObject()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object
	}
	kept := accessor.GetLabels()
	maps.DeleteFunc(kept, func(key, _ string) bool { return !strings.Contains(key, "/aggregate-to-") })
	if len(kept) == 0 {
		kept = nil
	}
	accessor.SetLabels(kept)
	switch object := object.(type) {
	case *rbacv1.ClusterRole:
		object.Name = ""
	case *policyv1.PodDisruptionBudget:
		object.Spec.Selector = nil
	case *apiextensionsv1.CustomResourceDefinition:
		delete(object.Annotations, "helm.sh/resource-policy")
	case *appsv1.Deployment:
		object.Spec.Selector, object.Spec.Template.Labels = nil, nil
		for i := range object.Spec.Template.Spec.TopologySpreadConstraints {
			object.Spec.Template.Spec.TopologySpreadConstraints[i].LabelSelector = nil
		}
	}
	return object
}

// checkLabels checks that everything that selects the pods does.
func checkLabels(t *testing.T, all objects) {
	t.Helper()
	deployment := find[*appsv1.Deployment](t, all)
	pods := deployment.Spec.Template.Labels
	selects := func(what string, selector *metav1.LabelSelector, set map[string]string) {
		t.Helper()
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || parsed.Empty() || !parsed.Matches(labels.Set(set)) {
			t.Errorf("%s selects %s, not %v (%v)", what, parsed, set, err)
		}
	}
	selects("the Deployment", deployment.Spec.Selector, pods)
	for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selects("the spread", constraint.LabelSelector, pods)
	}
	for key, object := range all {
		switch object := object.(type) {
		case *policyv1.PodDisruptionBudget:
			selects(key, object.Spec.Selector, pods)
		case *networkingv1.NetworkPolicy:
			selects(key, &object.Spec.PodSelector, pods)
		case *corev1.Service:
			selects(key, &metav1.LabelSelector{MatchLabels: object.Spec.Selector}, pods)
		case *monitoringv1.ServiceMonitor:
			selects(key, &object.Spec.Selector, find[*corev1.Service](t, all).Labels)
		}
	}
}

// TestValues renders the chart with each of its values, and looks at what it changes.
func TestValues(t *testing.T) {
	container := func(t *testing.T, all objects) corev1.Container {
		return find[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0]
	}
	secure := []string{"ClusterRole " + name + "-metrics-auth", "ClusterRoleBinding " + name + "-metrics-auth",
		"ClusterRole " + name + "-metrics-reader"}
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
			fewer:  []string{"ClusterRole " + name + "-hostnames", "ClusterRoleBinding " + name + "-hostnames"},
		},
		"namespaces": {
			values: "namespaces: [a, " + namespace + "]",
			fewer:  []string{"ClusterRole " + name + "-hostnames", "ClusterRoleBinding " + name + "-hostnames"},
			more: []string{"Role a/" + name + "-namespaced", "RoleBinding a/" + name + "-namespaced",
				"Role a/" + name + "-hostnames", "RoleBinding a/" + name + "-hostnames",
				"Role " + name + "-namespaced", "RoleBinding " + name + "-namespaced",
				"Role " + name + "-hostnames", "RoleBinding " + name + "-hostnames"},
			check: func(t *testing.T, all objects) {
				shipped := decodeFiles(t, "../../artifacts/deploy/local-service-controller.yaml",
					"../../artifacts/deploy/hostnames.yaml")
				role := func(key string) *rbacv1.Role { return find[*rbacv1.Role](t, objects{key: all[key]}) }
				// What is shipped is what each namespace grants and what the ClusterRole does.
				rules := slices.Concat(role("Role a/"+name+"-namespaced").Rules,
					find[*rbacv1.ClusterRole](t, objects{"": all["ClusterRole "+name]}).Rules)
				equal(t, find[*rbacv1.ClusterRole](t, objects{"": shipped["ClusterRole "+name]}).Rules, rules)
				equal(t, find[*rbacv1.ClusterRole](t, objects{"": shipped["ClusterRole "+name+"-hostnames"]}).Rules,
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
			check: func(t *testing.T, all objects) {
				for key, want := range shippedPolicies(t) {
					equal(t, comparable(want), comparable(all[key]))
				}
			},
		},
		"admission for another label and another name": {
			values: "{admission: {enabled: true}, flags: {node-label-key: example.com/node}, fullnameOverride: other}",
			more:   policies(t),
			check: func(t *testing.T, all objects) {
				maps.DeleteFunc(all, func(key string, _ runtime.Object) bool { return !strings.Contains(key, "Admission") })
				if strings.Contains(text(t, all), "vm/rack") {
					t.Error("the policies still have vm/rack")
				}
				guard := find[*admissionv1.ValidatingAdmissionPolicy](t, all)
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
			values: "metrics: {service: {enabled: true}, serviceMonitor: {enabled: true, labels: {a: b}, interval: 30s, " +
				"metricRelabelings: [{action: drop, regex: go_.*, sourceLabels: [__name__]}]}}",
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
				want, err := os.ReadFile("../../artifacts/dashboards/" + name + ".json")
				if err != nil {
					t.Fatal(err)
				}
				equal(t, map[string]string{name + ".json": string(want)}, dashboard.Data)
			},
		},
		"secure metrics": {
			values: "metrics: {secure: {enabled: true}, service: {enabled: true}, serviceMonitor: {enabled: true}}",
			more:   slices.Concat(secure, []string{"Service " + name + "-metrics", "ServiceMonitor " + name}),
			check: func(t *testing.T, all objects) {
				shipped := decodeFiles(t, "../../artifacts/deploy/metrics-secure.yaml")
				for _, role := range []string{"auth", "reader"} {
					equal(t, find[*rbacv1.ClusterRole](t, shipped, "local-service-metrics-"+role).Rules,
						find[*rbacv1.ClusterRole](t, all, name+"-metrics-"+role).Rules)
				}
				binding := find[*rbacv1.ClusterRoleBinding](t, all, name+"-metrics-auth")
				equal(t, name+"-metrics-auth", binding.RoleRef.Name)
				equal(t, find[*rbacv1.ClusterRoleBinding](t, shipped).Subjects, binding.Subjects)
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
			values: "{metrics: {secure: {enabled: true, certificateSecret: tls}, service: {enabled: true}, serviceMonitor: " +
				"{enabled: true, tlsConfig: {serverName: lsc}}}, networkPolicy: {enabled: true}}",
			more: slices.Concat(secure, []string{"Service " + name + "-metrics", "ServiceMonitor " + name,
				"NetworkPolicy " + name}),
			check: func(t *testing.T, all objects) {
				spec := find[*appsv1.Deployment](t, all).Spec.Template.Spec
				mount := container(t, all).VolumeMounts[0]
				equal(t, []string{"-metrics-secure-address=:8443", "-metrics-tls-cert-file=" + mount.MountPath + "/tls.crt",
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
			check: func(t *testing.T, all objects) {
				template := find[*appsv1.Deployment](t, all).Spec.Template
				equal(t, "mine", template.Spec.PriorityClassName)
				equal(t, map[string]string{"disk": "ssd"}, template.Spec.NodeSelector)
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
			check: func(t *testing.T, all objects) {
				spec := find[*appsv1.Deployment](t, all).Spec.Template.Spec
				equal(t, "", spec.PriorityClassName)
				equal(t, 0, len(spec.TopologySpreadConstraints))
				equal(t, 0, len(spec.Containers[0].Resources.Requests))
			},
		},
	}
	forEveryHelm(t, func(t *testing.T, helm string) {
		standard := keys(mustRender(t, helm, ""))
		for what, test := range tests {
			t.Run(what, func(t *testing.T) {
				all := mustRender(t, helm, test.values)
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
	})
}

func shippedPolicies(t *testing.T) objects {
	return decodeFiles(t, "../../artifacts/admission/node-label.yaml", "../../artifacts/admission/node-label-guard.yaml")
}

func policies(t *testing.T) []string { return keys(shippedPolicies(t)) }

// TestRules tests that the rules come through as they are in their file, but for what values change.
func TestRules(t *testing.T) {
	var file monitoringv1.PrometheusRuleSpec
	data, err := os.ReadFile(filepath.Join(chartFolder, "files", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		t.Fatal(err)
	}
	forEveryHelm(t, func(t *testing.T, helm string) {
		rule := find[*monitoringv1.PrometheusRule](t,
			mustRender(t, helm, "metrics: {prometheusRule: {enabled: true, labels: {a: b}}}"))
		equal(t, "b", rule.Labels["a"])
		equal(t, file, rule.Spec)
		other := find[*monitoringv1.PrometheusRule](t, mustRender(t, helm, "{nameOverride: other, "+
			"metrics: {prometheusRule: {enabled: true, runbookURL: 'https://example.com/runbooks/'}}}"))
		for _, rule := range other.Spec.Groups[0].Rules {
			equal(t, "https://example.com/runbooks/"+rule.Alert+".md", rule.Annotations["runbook_url"])
			if strings.Contains(rule.Expr.String(), name) {
				t.Errorf("%s selects another job: %s", rule.Alert, rule.Expr.String())
			}
		}
	})
}

// TestRefused has values that cannot work refused before anything is installed.
func TestRefused(t *testing.T) {
	tests := map[string]string{ // values -> a part of the error
		"replica: 3":                                 "replica",
		"replicas: many":                             "replicas",
		"image: {tag: 1}":                            "tag",
		"image: {digest: abc}":                       "digest",
		"flags: {http-address: ':80'}":               "flags",
		"flags: {-v: 2}":                             "flags",
		"flags: {worker: 2}":                         "flags",
		"flags: {leader-elect: false}":               "flags",
		"flags: {metrics-secure-address: ':443'}":    "flags",
		"flags: {namespaces: 'a'}":                   "flags",
		"namespaces: [a, a]":                         "namespaces",
		"namespaces: ['']":                           "namespaces",
		"namespaces: a":                              "namespaces",
		"fullnameOverride: Upper":                    "fullnameOverride",
		"hostnames: true":                            "hostnames",
		"metrics: {service: {port: 0}}":              "port",
		"leaderElection: {enabled: false}":           "replicas: 1",
		"metrics: {serviceMonitor: {enabled: true}}": "metrics.service.enabled",

		"metrics: {prometheusRule: {runbookURL: 'https://example.com'}}": "runbookURL",
	}
	forEveryHelm(t, func(t *testing.T, helm string) {
		for values, want := range tests {
			_, err := render(t, helm, chartFolder, name, parse(t, values))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error is %v, which does not name %s", values, err, want)
			}
		}
	})
}

// TestFlags tests that the value flags takes all flags of the controller but those that the chart sets itself, and
// those that are of no use in a pod.
func TestFlags(t *testing.T) {
	refused := []string{"namespaces", "leader-elect", "leader-election-lease-duration", "http-address",
		"metrics-secure-address", "metrics-tls-cert-file", "metrics-tls-key-file", "kubeconfig", "master", "version"}
	page, err := os.ReadFile("../../docs/reference/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string // sorted, as the page is
	for _, row := range regexp.MustCompile("(?m)^\\| `-([a-z-]+)").FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(refused, row[1]) {
			want = append(want, row[1])
		}
	}
	var schema struct {
		Properties struct {
			Flags struct{ Properties map[string]any }
		}
	}
	data, err := os.ReadFile(filepath.Join(chartFolder, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	equal(t, want, slices.Sorted(maps.Keys(schema.Properties.Flags.Properties)))
	values, err := os.ReadFile(filepath.Join(chartFolder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range refused {
		if !strings.Contains(string(values), "`"+flag+"`") {
			t.Errorf("values.yaml does not say that the flag %s is refused", flag)
		}
	}
}

// TestNames checks that no name of a release makes names that are too long, and that two have none in common.
func TestNames(t *testing.T) {
	const everything = `{networkPolicy: {enabled: true}, metrics: {service: {enabled: true},
		secure: {enabled: true}}}`
	forEveryHelm(t, func(t *testing.T, helm string) {
		long, err := render(t, helm, chartFolder, strings.Repeat("x", 53), parse(t, everything))
		if err != nil {
			t.Fatal(err)
		}
		short, err := render(t, helm, chartFolder, "x", parse(t, everything))
		if err != nil {
			t.Fatal(err)
		}
		for key := range long {
			_, name, _ := strings.Cut(key, " ")
			if len(name) > 63 && !strings.HasPrefix(key, "ClusterRole") { // which may have long names
				t.Errorf("%s is too long", key)
			}
			if short[key] != nil && !strings.HasPrefix(key, "CustomResourceDefinition ") {
				t.Errorf("two releases both have %s", key)
			}
		}
		checkLabels(t, long)
	})
}

func TestLint(t *testing.T) {
	for _, m := range lint3.All(chartFolder, nil, namespace, true).Messages {
		if m.Severity > 1 { // 1: a chart may have an icon
			t.Error(m)
		}
	}
	for _, m := range lint4.RunAll(chartFolder, nil, namespace).Messages {
		if m.Severity > 1 {
			t.Error(m)
		}
	}
}

func forEveryHelm(t *testing.T, test func(t *testing.T, helm string)) {
	for helm := range everyHelm {
		t.Run(helm, func(t *testing.T) { test(t, helm) })
	}
}

func mustRender(t *testing.T, helm, values string) objects {
	t.Helper()
	all, err := render(t, helm, chartFolder, name, parse(t, values))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func keys(all objects) []string { return slices.Sorted(maps.Keys(all)) }

func equal(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want, +got)\n%s", diff)
	}
}

// TestRolesGrantOnlyWhatTheyName looks through all roles, with every value on that makes one, for rules that grant more
// than they name, or what nobody needs for this.
func TestRolesGrantOnlyWhatTheyName(t *testing.T) {
	const everything = "{admission: {enabled: true}, metrics: {service: {enabled: true}, " +
		"serviceMonitor: {enabled: true}}, networkPolicy: {enabled: true}}"
	check := func(t *testing.T, all objects) {
		rules := 0
		for key, object := range all {
			var granted []rbacv1.PolicyRule
			switch object := object.(type) {
			case *rbacv1.ClusterRole:
				granted = object.Rules
				if object.AggregationRule != nil {
					t.Errorf("%s grants what other roles do", key)
				}
			case *rbacv1.Role:
				granted = object.Rules
			}
			rules += len(granted)
			for _, rule := range granted {
				for _, word := range slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs) {
					if strings.Contains(word, "*") || slices.Contains([]string{"escalate", "bind", "impersonate", "secrets",
						"pods/exec", "pods/attach", "nodes/proxy", "serviceaccounts/token", rbacv1.GroupName}, word) {
						t.Errorf("%s has %q in the rule %+v", key, word, rule)
					}
				}
			}
		}
		if rules < 10 {
			t.Errorf("there are %d rules: have the roles moved?", rules)
		}
	}
	t.Run("manifests", func(t *testing.T) {
		check(t, decodeFiles(t, "../../artifacts/deploy/local-service-controller.yaml",
			"../../artifacts/deploy/hostnames.yaml"))
	})
	forEveryHelm(t, func(t *testing.T, helm string) {
		check(t, mustRender(t, helm, everything))
		check(t, mustRender(t, helm, "namespaces: [a, b]"))
	})
}

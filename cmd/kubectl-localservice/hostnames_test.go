package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

// zones has the values of the label zone of n1 to n5; n6 has no label.
var zones = []string{"eu-a", "eu-a", "EU.b", "eu-c", ""}

// newHostnamesFixture returns a plugin and the cluster that it inspects: LocalService demo has mode Hostnames.
// Kubernetes has published the pods a and b on n1, c, which is not ready, on n2, and d on n4. The
// controller has not copied the EndpointSlice of d.
func newHostnamesFixture(t *testing.T, groupBy string) *fixture {
	t.Helper()
	ls := localService("demo", "", v1alpha1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromString("web")})
	ls.Spec.Mode, ls.Spec.GroupBy = v1alpha1.ModeHostnames, groupBy
	ls.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHostnamesNotPermitted,
			Message: "mode Hostnames needs the permission to write EndpointSlices"},
	}
	source, published := templates(ls)[0].Service(""), templates(ls)[1].Service("")
	source.UID, published.UID = "uid-of-source", "uid-of-published"

	names := plan.NewNames(ls, func(string) bool { return true }, func(node, _ string) (string, bool) {
		return zones[node[1]-'1'], true
	})
	copied := sourceSlice(source, "1", on("n1", endpoint("a", "10.0.0.1", true)),
		on("n1", endpoint("b", "10.0.0.2", true)), on("n2", endpoint("c", "10.0.0.3", false)))
	uncopied := sourceSlice(source, "2", on("n4", endpoint("d", "10.0.0.4", true)))
	names.Source = plan.FromAPI(source, v1alpha1.DefaultNodeLabelKey)
	names.Published = plan.FromAPI(published, v1alpha1.DefaultNodeLabelKey)
	names.Slices = map[string]plan.EndpointSlice{copied.Name: plan.SliceFromAPI(copied)}
	change := names.Copies().Changes[0]
	f := newFixture(t, []runtime.Object{source, published, copied, uncopied, names.Copy(&change),
		pod("d", "n4", true)}...)
	f.localServices = fake.NewClientset(ls)
	return f
}

// sourceSlice is an EndpointSlice in which Kubernetes publishes pods.
func sourceSlice(source *corev1.Service, suffix string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := slice(source.Name, endpoints...)
	s.Name = source.Name + "-" + suffix
	s.Labels[discoveryv1.LabelManagedBy] = plan.KubernetesSliceManager
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(source,
		corev1.SchemeGroupVersion.WithKind("Service"))}
	return s
}

func on(node string, e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.NodeName = &node
	return e
}

func TestHostnamesOutput(t *testing.T) {
	const log = "see kubectl logs -n default c --previous"
	const unpublished = "the name is not published; mode Hostnames needs the permission to write EndpointSlices"
	const unlabelled = "the label zone (spec.groupBy) of the node is empty, and its value would be the name"
	for groupBy, outputs := range map[string]map[string]string{
		"": {
			"nodes demo": `
NODE   NAME      ENDPOINTS   REASON
n1     n1.demo   2/2         
n2     n2.demo   0/1         exit code 1 (c: 5 restarts)
n3     n3.demo   0/0         no pod with app=demo here
n4     n4.demo   0/0         ` + unpublished + `
n5     n5.demo   0/0         no pod with app=demo here
`,
			"nodes demo -o name":   "\nservice/demo\n",
			"__complete url demo ": "\nn1\nn2\nn3\nn4\nn5\n:4\n",
			"url demo n1":          "\nhttp://n1.demo.default:8080\n",
		},
		"zone": {
			"nodes demo": `
NODE   NAME                   ENDPOINTS   REASON
eu-a   eu-a.demo              2/3         exit code 1 (c: 5 restarts)
eu-c   eu-c.demo              0/0         the name is not published; mode Hostnames needs the permission to write End…
EU.b   eu-b-5p6vttgaff.demo   0/0         no pod with app=demo here
n5     <none>                 0/0         the label zone (spec.groupBy) of the node is empty, and its value would be …
`,
			"__complete url demo ": "\neu-a\neu-c\nEU.b\n:4\n",
			"url demo EU.b":        "\nhttp://eu-b-5p6vttgaff.demo.default:8080\n",
		},
	} {
		below := map[string]string{"": "n2: " + log + "\n", "zone": "eu-a: " + log + "\neu-c: " + unpublished + "\nn5: " +
			unlabelled + "; label it, or correct spec.groupBy: kubectl get nodes -L zone\n"}[groupBy]
		summary := fmt.Sprintf("LocalService default/demo: nodes %[1]d, answering 1/%[1]d, status "+
			"HostnamesNotPermitted.\n", map[string]int{"": 5, "zone": 3}[groupBy])
		const ports = "Clients must connect to port 8080 (not 80): a headless Service does not translate ports.\n"
		newHostnamesFixture(t, groupBy).wantOutput(t, ports+below+summary, outputs)
		if groupBy == "" {
			newHostnamesFixture(t, "").wantOutput(t, ports+summary, map[string]string{
				"nodes demo -o wide --no-headers": `
n1    n1.demo   n1.demo.default.svc.cluster.local   2/2   a,b      10.0.0.1,10.0.0.2   
n2    n2.demo   n2.demo.default.svc.cluster.local   0/1   c        <none>              exit code 1 (c: 5 restarts); ` + log + `
n3    n3.demo   n3.demo.default.svc.cluster.local   0/0   <none>   <none>              no pod with app=demo here
n4    n4.demo   n4.demo.default.svc.cluster.local   0/0   d        <none>              ` + unpublished + `
n5    n5.demo   n5.demo.default.svc.cluster.local   0/0   <none>   <none>              no pod with app=demo here
`,
			})
		}
	}
}

func TestHostnamesErrors(t *testing.T) {
	const see = ": see `kubectl localservice nodes demo -n default`\n"
	for _, c := range []struct{ groupBy, node, want string }{
		{"", "n6", "has no name for a node n6" + see},
		{"", "n7", "has no name for a node n7" + see},
		{"zone", "n1", "has no name for a group of nodes n1" + see},
		{"zone", "n5", "has no name for a group of nodes n5: the label zone (spec.groupBy) of the node is empty, and its value would be the name" + see},
	} {
		f := newHostnamesFixture(t, c.groupBy)
		f.wantError(t, "error: LocalService default/demo "+c.want, "url", "demo", c.node)
	}
	f := newHostnamesFixture(t, "")
	if err := f.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "default",
		"demo"); err != nil {
		t.Fatal(err)
	}
	const missing = "no name for a node n1: Service demo, which publishes the names, is missing; mode Hostnames"
	f.wantError(t, missing, "url", "demo", "n1")
}

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
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

	names := plan.NamesOf(ls, v1alpha1.DefaultNodeLabelKey, []string{"n1", "n2", "n3", "n4"},
		func(node, _ string) (string, bool) { return zones[node[1]-'1'], true },
		func(string) *corev1.Service { return nil })
	copied := objects.SourceSlice(source.Name, source.UID, source.Name+"-1", "a@n1",
		"b@n1", "c@n2!")
	uncopied := objects.SourceSlice(source.Name, source.UID, source.Name+"-2", "d@n4")
	names.Source, names.Published = source, published
	names.Slices = map[string]*discoveryv1.EndpointSlice{copied.Name: copied}
	change := names.Copies().Changes[0]
	f := newFixture(t, []runtime.Object{source, published, copied, uncopied, names.Copy(&change),
		objects.Pod("d", "n4")}...)
	f.localServices = fake.NewClientset(ls)
	return f
}

func TestHostnamesOutput(t *testing.T) {
	const summary = "Clients must connect to port 8080 (not 80): a headless Service does not translate ports.\n" +
		"eu-a: see kubectl logs -n default c\n" +
		"n5: set the label, or correct spec.groupBy: kubectl get nodes -L zone\n" +
		"LocalService default/demo: nodes 3, answering 1/3, status HostnamesNotPermitted.\n"
	newHostnamesFixture(t, "zone").wantOutput(t, summary, map[string]string{
		"nodes demo": `
NODE   NAME        ENDPOINTS   REASON
eu-a   eu-a.demo   2/3         exit code 1 (c: 5 restarts)
eu-c   eu-c.demo   0/0         the name is not up to date; mode Hostnames needs the permission to write EndpointSlices
EU.b   eu-b.demo   0/0         no matching pod here (app=demo)
n5     <none>      0/0         no value for label zone (spec.groupBy), so no name
`,
		"nodes demo -o name": "\nservice/demo\n",
		"url demo eu-a":      "\nhttp://eu-a.demo.default:8080\n",
	})
	newHostnamesFixture(t, "").wantOutput(t, "", map[string]string{
		"url demo n1": "\nhttp://n1.demo.default:8080\n",
	})
}

func TestHostnamesErrors(t *testing.T) {
	const see = ": see `kubectl localservice nodes demo -n default`\n"
	for _, c := range []struct{ groupBy, node, want string }{
		{"", "n6", "has no name for node n6" + see},
		{"zone", "n1", "has no name for zone n1" + see},
		{"zone", "n5", "has no name for zone n5: no value for label zone (spec.groupBy), so no name" + see},
	} {
		f := newHostnamesFixture(t, c.groupBy)
		f.wantError(t, "error: LocalService default/demo "+c.want, "url", "demo", c.node)
	}
	f := newHostnamesFixture(t, "")
	if err := f.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "default",
		"demo"); err != nil {
		t.Fatal(err)
	}
	const missing = "no name for node n1: no Service demo for the names; mode Hostnames"
	f.wantError(t, missing, "url", "demo", "n1")
}

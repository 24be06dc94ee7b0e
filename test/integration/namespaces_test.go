package integration

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestNamespaces runs the controller for two namespaces, one of which is created later, with permissions in only those.
// It does all its work there, and makes no request elsewhere. Until the second one exists, its reads are refused there,
// which holds nothing up.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, publisher())
	s, other := newScene(t, cluster, "within"), newScene(t, cluster, "without")
	later := &scene{&framework.Scene{Cluster: cluster, T: t, Namespace: s.Namespace + "-later"}}
	const account = "controller"
	shipped := allShipped(t)
	ofCluster, ofNamespace := []rbacv1.PolicyRule{}, shipped.OwnRules
	for _, rule := range shipped.Rules {
		if rule.Resources[0] == "nodes" {
			ofCluster = append(ofCluster, rule)
		} else {
			ofNamespace = append(ofNamespace, rule)
		}
	}
	kubeconfig := s.NewAccount(t, s.Namespace, account, framework.Permissions{Rules: ofCluster, OwnRules: ofNamespace})
	began := cluster.Audit.Mark()
	controller := s.NewController(t, "-kubeconfig="+kubeconfig, "-namespaces="+s.Namespace+","+later.Namespace,
		"-leader-elect", "-leader-election-namespace="+s.Namespace)
	_, err := controller.WaitLog(t.Context(), "Permissions are missing: grant them as in", "services in namespace "+
		later.Namespace)
	s.Must(err)

	// The objects elsewhere exist before everything that follows.
	elsewhere := other.AddNodes("a")[0]
	other.Create("demo")
	other.CreatePod("pod", elsewhere, app)
	s.work("work")
	node := s.AddNodes("x")[0]
	s.run("pod", node, "10.1.0.1")
	s.CreateReady("demo", framework.WithHostnames)
	if hostname := s.sliceOf("demo").Endpoints[0].Hostname; hostname == nil || *hostname != node {
		t.Errorf("the hostname is %v, not %s", hostname, node)
	}

	// begin creates the second namespace, with the permissions that the controller needs there.
	begin := func() {
		t.Helper()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: later.Namespace}}
		_, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		s.Must(err)
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: ofNamespace}
		_, err = s.Kube.RbacV1().Roles(later.Namespace).Create(t.Context(), role, metav1.CreateOptions{})
		s.Must(err)
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: account}}}
		_, err = s.Kube.RbacV1().RoleBindings(later.Namespace).Create(t.Context(), binding, metav1.CreateOptions{})
		s.Must(err)
	}
	begin()
	later.work("work")
	if denied := cluster.Audit.Since(began).ByController().Where(func(r *framework.Request) bool {
		return isForbidden(r) && r.ObjectRef.Namespace != later.Namespace
	}); len(denied) > 0 {
		t.Errorf("the controller was refused: %s", denied)
	}
	s.MustKubectl("delete", "namespace", later.Namespace)
	begin()
	later.work("again")

	if services, err := other.ServiceClient().List(t.Context(), metav1.ListOptions{}); err != nil ||
		len(services.Items) > 0 {
		t.Errorf("in another namespace there are %d Services, %v", len(services.Items), err)
	}
	if labels := other.GetPod("pod").Labels; len(labels) != 1 {
		t.Errorf("in another namespace the pod has the labels %v", labels)
	}
	asked := cluster.Audit.Since(began).ByController().Where(func(r *framework.Request) bool {
		return r.ObjectRef.Namespace == other.Namespace ||
			r.ObjectRef.Namespace == "" && r.ObjectRef.Resource != "nodes" && r.ObjectRef.Resource != ""
	})
	if len(asked) > 0 {
		t.Errorf("the controller asked for what is elsewhere: %s", asked)
	}
}

// allShipped returns the permissions that the controller has with mode Hostnames, and with additional files.
func allShipped(t testing.TB, more ...string) framework.Permissions {
	t.Helper()
	shipped, err := framework.ShippedPermissions(append(more, framework.ControllerPermissions,
		framework.HostnamesPermissions)...)
	if err != nil {
		t.Fatal(err)
	}
	return shipped
}

// isForbidden does not count the dry runs of what the guard must refuse.
func isForbidden(r *framework.Request) bool {
	return r.ResponseStatus.Code == http.StatusForbidden && !strings.Contains(r.RequestURI, "dryRun=")
}

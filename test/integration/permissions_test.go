package integration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// permissionRow is a line of the tables in docs/reference/permissions.md.
var permissionRow = regexp.MustCompile("(?m)^\\| `([a-z0-9./]+)` \\| `([a-z]+)` \\| [^|]+ \\|$")

// TestPermissionsAreDocumented compares the tables in the documentation with what is shipped. Only the permissions for
// leases are limited to the controller's own namespace.
func TestPermissionsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(framework.ModuleFile("docs", "reference", "permissions.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := []string{}
	for _, row := range permissionRow.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[2]+" "+row[1])
	}
	shipped := []string{}
	for _, permission := range allShipped(t, framework.SecureMetricsPermissions).All() {
		shipped = append(shipped, permission.String())
		isLease := permission.Resource == "leases"
		if permission.Own != isLease {
			t.Errorf("%s is granted in the controller's own namespace only: %t", permission, permission.Own)
		}
		if isLease && permission.Verb != "create" && permission.Name == "" {
			t.Errorf("%s is granted for the Leases of others", permission)
		}
	}
	slices.Sort(documented)
	slices.Sort(shipped)
	if err := framework.Equal("documented permissions", documented, shipped); err != nil {
		t.Error(err)
	}
}

// restrictedEndpoints is how OpenShift protects the addresses of pods: to publish them takes a permission that nothing
// else asks for.
const restrictedEndpoints = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: restricted-endpoints}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [discovery.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [endpointslices]}
  matchConditions:
  - name: not-kubernetes-itself
    expression: request.userInfo.username.startsWith('system:serviceaccount:')
      && !request.userInfo.username.startsWith('system:serviceaccount:kube-system:')
  validations:
  - expression: object.?endpoints.orValue([]).size() == 0
      || authorizer.group('discovery.k8s.io').resource('endpointslices').subresource('restricted')
      .namespace(request.namespace).name(request.name).check('create').allowed()
    message: endpoint address is not allowed
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: restricted-endpoints}
spec: {policyName: restricted-endpoints, validationActions: [Deny]}
`

// TestEachPermission makes the controller do all its work, and looks for a request that needs each permission. A
// permission that no request needs is not needed. Three are for no request of their own: admission asks for them when
// the controller writes something else, as it does here, and refuses that without them. The guard permits it all.
func TestEachPermission(t *testing.T) {
	t.Parallel()
	options := publisher()
	options.Args = append(options.Args,
		"--apiserver-flag=--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement")
	cluster := framework.NewCluster(t, options)
	s := newScene(t, cluster, "each")
	s.Apply(restrictedEndpoints)
	controller, err := framework.StartController(framework.ControllerOptions{
		Args: []string{"-kubeconfig=" + cluster.MustControllerKubeconfig(t), "-leader-elect",
			"-leader-election-namespace=" + framework.ControllerNamespace},
		// This API server can do without lists, by streaming; others cannot.
		Env: []string{"KUBE_FEATURE_WatchListClient=false"}})
	s.Must(err)
	t.Cleanup(controller.Kill)
	s.work("work")
	node := s.AddNodes("a")[0]
	s.Create("demo")
	s.createOwned(node)
	s.run("pod", node, "10.1.0.1")
	hostnames := func(ls *v1alpha1.LocalService) { ls.Spec.Mode, ls.Spec.Selector = v1alpha1.ModeHostnames, app }
	s.Create("names", hostnames)
	s.sliceOf("names")
	s.MustKubectl("delete", "localservice", "names", "--cascade=orphan")
	s.Eventually("the Service is an orphan", func(context.Context) error {
		return framework.Equal("owners", s.GetService("names").OwnerReferences, nil)
	})
	s.CreateReady("names", hostnames) // It adopts the Services, if the guard lets it.
	s.setPodStatus("pod", "10.1.0.1", "Waiting")
	client := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	// Kubernetes does not republish an EndpointSlice that is deleted before the response to its last update arrives: the
	// copy comes after that.
	s.Eventually("the copy says that the pod is not ready", func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=names"})
		if err != nil || len(list.Items) == 0 || len(list.Items[0].Endpoints) == 0 {
			return fmt.Errorf("%v, %v", list, err)
		}
		return framework.Equal("ready", *list.Items[0].Endpoints[0].Conditions.Ready, false)
	})
	// The copy of an EndpointSlice that is gone is deleted.
	s.Must(client.DeleteCollection(s.Ctx(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: v1alpha1.HostnamesLabelKey + "=" + v1alpha1.HostnamesSource}))

	// unused returns the permissions that no request has needed, other than the three.
	unused := func() []string {
		asked, found := s.AllRequests().ByController(), []string{}
		for _, p := range allShipped(t).All() {
			isForAdmission := strings.HasSuffix(p.Resource, "/finalizers") || p.Resource == "endpointslices/restricted"
			needsIt := func(r *framework.Request) bool {
				return r.Verb == p.Verb && r.ObjectRef.APIGroup == p.Group && framework.Resource(r) == p.Resource
			}
			if !isForAdmission && len(asked.Where(needsIt)) == 0 {
				found = append(found, p.String())
			}
		}
		return found
	}
	s.Eventually("each permission is used but those to watch, which are in the log when the watch ends",
		func(context.Context) error {
			left := slices.DeleteFunc(unused(), func(p string) bool { return strings.HasPrefix(p, "watch ") })
			if len(left) > 0 { // The same event twice becomes a series, unless a status was written in between.
				_ = s.ServiceClient().Delete(s.Ctx(), "demo-"+node, metav1.DeleteOptions{})
			}
			return framework.Equal("unused permissions", left, []string{})
		})
	s.Must(controller.Stop())
	s.Eventually("each permission is used", func(context.Context) error {
		return framework.Equal("unused permissions", unused(), []string{})
	})
	if denied := s.AllRequests().ByController().Where(isForbidden); len(denied) > 0 {
		t.Errorf("the controller was denied: %s", denied)
	}
}

// createOwned creates pods with another node label, each with a controller of another kind, which does not exist.
func (s *scene) createOwned(node string) {
	s.T.Helper()
	for _, owner := range []string{"apps/v1 ReplicaSet", "apps/v1 DaemonSet", "apps/v1 StatefulSet", "batch/v1 Job",
		"v1 ReplicationController"} {
		version, kind, _ := strings.Cut(owner, " ")
		s.CreatePod("of-"+strings.ToLower(kind), node, app, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "demo", "vm/rack": "another"}
			pod.Finalizers = []string{"example.com/stays"} // The garbage collector does not find the owner.
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "x", UID: "x",
				Controller: new(true)}}
		})
	}
}

package integration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		if permission.Own != (permission.Resource == "leases") {
			t.Errorf("%s is granted in the controller's own namespace only: %t", permission, permission.Own)
		}
	}
	slices.Sort(documented)
	slices.Sort(shipped)
	if err := framework.Equal("documented permissions", documented, shipped); err != nil {
		t.Error(err)
	}
}

// complaint is the text in the log when the API server refuses what the permission is for.
func complaint(p framework.Permission) string {
	if strings.HasSuffix(p.Resource, "/finalizers") {
		return "cannot set blockOwnerDeletion"
	}
	if p.Resource == "endpointslices/restricted" {
		return restrictedMessage
	}
	return fmt.Sprintf(`cannot %s resource \"%s\"`, p.Verb, p.Resource)
}

const restrictedMessage = "endpoint address is not allowed"

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
    message: ` + restrictedMessage + `
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: restricted-endpoints}
spec: {policyName: restricted-endpoints, validationActions: [Deny]}
`

// TestEachPermission removes each permission, one at a time. The controller works until it needs the missing one, and
// then reports what it cannot do. A permission that is never missed is not needed. Each controller has a namespace, so
// that they work at the same time.
func TestEachPermission(t *testing.T) {
	t.Parallel()
	options := publisher()
	options.Args = append(options.Args,
		"--apiserver-flag=--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement")
	cluster := framework.NewCluster(t, options)
	cluster.NewScene(t, "restricted").Apply(restrictedEndpoints)
	shipped := allShipped(t)
	scenes := map[framework.Permission]*scene{}
	kubeconfigs := map[framework.Permission]string{}
	for _, permission := range shipped.All() {
		s := newScene(t, cluster, "without")
		scenes[permission] = s
		kubeconfigs[permission] = s.NewAccount(t, s.Namespace, "controller", shipped.Without(permission))
	}
	launch := func(t *testing.T, permission framework.Permission) *framework.Controller {
		t.Helper()
		s := scenes[permission]
		opts := framework.ControllerOptions{Args: []string{"-kubeconfig=" + kubeconfigs[permission],
			"-namespaces=" + s.Namespace, "-leader-elect", "-leader-election-namespace=" + s.Namespace,
			"-leader-election-lease-duration=15s"}}
		if permission.Verb == "list" { // This API server can do without, by streaming; others cannot.
			opts.Env = []string{"KUBE_FEATURE_WatchListClient=false"}
		}
		controller, err := framework.StartController(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(controller.Kill)
		return controller
	}
	for _, permission := range shipped.All() {
		t.Run(permission.String(), func(t *testing.T) {
			t.Parallel()
			s := scenes[permission].in(t)
			controller := launch(t, permission)
			pokes := s.pokes()
			round := 0
			s.Eventually("the log says what cannot be done without it", func(ctx context.Context) error {
				if len(controller.LogLines(complaint(permission))) > 0 {
					return nil
				}
				poke := round % len(pokes)
				pokes[poke](round)
				// It is reported at once, if it comes twice.
				isEvent := strings.HasPrefix(permission.Resource, "events")
				if round++; slices.Contains(denied, poke) && !isEvent {
					time.Sleep(17 * time.Second) // What RBAC denies is reported once that has lasted for 15 seconds.
				}
				return fmt.Errorf("after %d changes it does not; it ends with:\n%s", round, controller.Tail(10))
			})
		})
	}
}

// createOwned creates pods with another node label, each with a controller of another kind, which does not exist.
func (s *scene) createOwned(round int, node string) {
	s.T.Helper()
	for i, owner := range []string{"apps/v1 ReplicaSet", "apps/v1 DaemonSet", "apps/v1 StatefulSet", "batch/v1 Job",
		"v1 ReplicationController"} {
		version, kind, _ := strings.Cut(owner, " ")
		s.CreatePod(fmt.Sprintf("owned-%d-%d", round, i), node, app, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"app": "demo", "vm/rack": "another"}
			pod.Finalizers = []string{"example.com/stays"} // The garbage collector does not find the owner.
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "x", UID: "x",
				Controller: new(true)}}
		})
	}
}

// denied are the pokes after which RBAC may deny something, until the next one makes it needless: a patch of a Service,
// an update of an EndpointSlice, the deletion of a Service, and a look at the owner of a pod.
var denied = []int{0, 3, 7, 9}

// pokes make changes that cause all kinds of work of a controller. They do not wait for it.
func (s *scene) pokes() []func(round int) {
	s.T.Helper()
	nodes := s.AddNodes("a", "b")
	s.Create("demo")
	s.Create("names", framework.WithHostnames, func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
	s.run("pod", nodes[0], "10.1.0.1")
	slices := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	const source = v1alpha1.HostnamesLabelKey + "=" + v1alpha1.HostnamesSource
	const published = v1alpha1.HostnamesLabelKey + "=" + v1alpha1.HostnamesPublished
	now := metav1.DeleteOptions{}
	ignore := func(error) {} // What a change is about may not be there yet.
	return []func(round int){
		func(round int) {
			s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = int32(80 + round%100) })
		},
		func(round int) {
			if round > 40 {
				return // Whatever has no label when its source is gone is out of sight, and is not deleted.
			}
			lost, err := slices.List(s.Ctx(), metav1.ListOptions{LabelSelector: published})
			s.Must(err)
			for i := range lost.Items {
				_, err := slices.Patch(s.Ctx(), lost.Items[i].Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`,
						v1alpha1.HostnamesLabelKey), metav1.PatchOptions{})
				ignore(err)
			}
		},
		// The same event twice: one Service is recreated.
		func(int) { ignore(s.ServiceClient().Delete(s.Ctx(), "demo-"+nodes[0], now)) },
		func(int) { s.setPodStatus("pod", "10.1.0.1", "Waiting") },
		func(int) { ignore(s.ServiceClient().Delete(s.Ctx(), "demo-"+nodes[0], now)) },
		func(int) { s.setPodStatus("pod", "10.1.0.1", "") },
		func(int) {
			ignore(slices.DeleteCollection(s.Ctx(), now, metav1.ListOptions{LabelSelector: source}))
		},
		func(int) { ignore(s.Kube.CoreV1().Nodes().Delete(s.Ctx(), nodes[1], now)) },
		func(int) { s.PatchPod("pod", `{"metadata":{"labels":{"vm/rack":null}}}`) },
		func(round int) { s.createOwned(round, nodes[0]) },
		func(int) {
			_, err := s.Kube.CoreV1().Nodes().Create(s.Ctx(), framework.NewNode(nodes[1],
				map[string]string{framework.SceneLabel: s.Namespace}), metav1.CreateOptions{})
			ignore(err)
		},
	}
}

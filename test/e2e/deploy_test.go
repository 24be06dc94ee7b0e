package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	controllerUser = "system:serviceaccount:" + controllerNamespace + ":" + controllerName
)

// TestLeaderChanges deletes the replica that leads: the other one, or a new one, takes over and works.
func TestLeaderChanges(t *testing.T) {
	s := newScene(t)
	var leader string
	s.Eventually("one of two replicas leads", func(ctx context.Context) (err error) {
		if leader, err = currentLeader(ctx); err != nil {
			return err
		}
		pods, err := controllerPods(ctx)
		if err == nil && (len(pods) != 2 || !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == leader })) {
			err = fmt.Errorf("the leader is %q; there are %d replicas", leader, len(pods))
		}
		return err
	})
	s.deploy(3)
	first := s.localService("first")
	s.waitForPods(1, nodes...)
	s.wantServices(first, nodes...)
	s.wantAnswers(nodes[:1], nodes, s.byName(first))
	stop := s.watch(nodes[0], nodes, s.byName(first)) // Traffic does not need the controller.

	_, err := cluster.Kubectl(s.Ctx(), "--namespace="+controllerNamespace, "delete", "pod", leader, "--wait=false")
	s.Must(err)
	second := s.localService("second")
	s.wantServices(second, nodes...)
	s.wantAnswers(nodes, nodes, s.byName(first), s.byName(second))
	now, err := currentLeader(s.Ctx())
	s.Must(err)
	if now == leader {
		t.Errorf("%s still holds the Lease", leader)
	}
	stop()
	_, err = cluster.Kubectl(s.Ctx(), "--namespace="+controllerNamespace, "rollout", "status", "deployment/"+controllerName, "--timeout=2m")
	s.Must(err)
}

// currentLeader is the pod that holds the Lease.
func currentLeader(ctx context.Context) (string, error) {
	lease, err := cluster.Kube.CoordinationV1().Leases(controllerNamespace).Get(ctx, controllerName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod, nil
}

// TestPermissions makes the controller do all that it ever does. That the other tests pass shows that its permissions
// suffice; here they are shown to be no more than that.
func TestPermissions(t *testing.T) {
	s := newScene(t)
	s.deploy(1)
	ls := s.localService("demo")
	s.wantServices(ls, nodes...)
	s.anyPod()
	s.wantNodeLabels()
	s.MustKubectl("delete", "localservice", ls.Name, "--cascade=orphan")
	ls = s.localService(ls.Name) // It adopts what the other one has left.
	s.wantServices(ls, nodes...)
	s.MustKubectl("patch", "localservice", ls.Name, "--type=merge", `--patch={"spec":{"publishNotReadyAddresses":true}}`)
	s.wantServices(ls, nodes...)
	// One that is orphaned is adopted, after a look whether the LocalService is still there.
	s.MustKubectl("patch", "service", ls.Name+"-"+nodes[0], "--type=merge", `--patch={"metadata":{"ownerReferences":null}}`)
	s.wantServices(ls, nodes...)
	s.MustKubectl("patch", "localservice", ls.Name, "--type=merge", `--patch={"spec":{"nodeSelector":{"none":"such"}}}`)
	s.wantServices(ls)

	granted := s.granted()
	maps.DeleteFunc(granted, func(permission string, _ bool) bool {
		verb, _, _ := strings.Cut(permission, " ")
		return verb == "list" || verb == "watch" || // A watch is in the audit log when it ends; a list is how it may begin.
			permission == "update localservices/finalizers" || // Asked for by an admission plug-in that is not on here.
			permission == "patch events" // For events that come again and again.
	})
	s.Eventually("the controller has used all its permissions", func(context.Context) error {
		unused := maps.Clone(granted)
		for _, r := range cluster.Audit.Since(0) {
			if r.User.Username != controllerUser {
				continue
			}
			delete(unused, r.Verb+" "+framework.Resource(&r))
			// In other namespaces, those of tests before this one, it may be refused because they are being deleted.
			if r.ResponseStatus.Code == http.StatusForbidden && r.ObjectRef.Namespace == s.Namespace {
				t.Fatalf("the controller may not %s %s", r.Verb, framework.Resource(&r))
			}
		}
		if len(unused) > 0 {
			return fmt.Errorf("it has never used: %v", slices.Sorted(maps.Keys(unused)))
		}
		return nil
	})
	for _, forbidden := range []authorizationv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets"}, {Verb: "list", Resource: "secrets"}, {Verb: "get", Resource: "configmaps"},
		{Verb: "create", Resource: "pods"}, {Verb: "delete", Resource: "pods"}, {Verb: "create", Resource: "pods", Subresource: "exec"},
		{Verb: "get", Resource: "nodes", Subresource: "proxy"}, {Verb: "patch", Resource: "nodes"}, {Verb: "update", Resource: "services"},
		{Verb: "create", Group: "localservice.dev", Resource: "localservices"}, {Verb: "patch", Group: "localservice.dev", Resource: "localservices"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"},
		{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}, {Verb: "*", Group: "*", Resource: "*"},
	} {
		review, err := cluster.Kube.AuthorizationV1().SubjectAccessReviews().Create(s.Ctx(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: controllerUser, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + controllerNamespace, "system:authenticated"},
				ResourceAttributes: &forbidden,
			},
		}, metav1.CreateOptions{})
		s.Must(err)
		if review.Status.Allowed {
			t.Errorf("the controller may do what it has no need for: %+v: %s", forbidden, review.Status.Reason)
		}
	}
}

// granted are the verbs and resources of the controller's roles.
func (s *scene) granted() map[string]bool {
	s.T.Helper()
	clusterRole, err := cluster.Kube.RbacV1().ClusterRoles().Get(s.Ctx(), controllerName, metav1.GetOptions{})
	s.Must(err)
	role, err := cluster.Kube.RbacV1().Roles(controllerNamespace).Get(s.Ctx(), controllerName, metav1.GetOptions{})
	s.Must(err)
	granted := map[string]bool{}
	for _, rule := range slices.Concat(clusterRole.Rules, []rbacv1.PolicyRule(role.Rules)) {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				granted[verb+" "+resource] = true
			}
		}
	}
	return granted
}

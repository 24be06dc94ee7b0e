package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestLeaderChanges deletes the leader: the other replica, or a new one, takes over and works.
func TestLeaderChanges(t *testing.T) {
	s := newScene(t)
	var leader string
	s.Eventually("one of two replicas leads", func(ctx context.Context) (err error) {
		leader, err = currentLeader(ctx)
		pods, podsErr := controllerPods(ctx)
		if len(pods) != 2 || !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name == leader }) {
			return errors.Join(fmt.Errorf("the leader is %q; there are %d replicas", leader, len(pods)), err, podsErr)
		}
		return nil
	})
	s.deploy(3)
	first := s.localService("first")
	s.waitForPods(1, nodes...)
	s.wantServices(first, nodes...)
	s.wantAnswers(nodes[:1], nodes, s.byName(first))
	stop := s.watch(nodes[0], nodes, s.byName(first)) // Traffic does not need the controller.

	_, err := s.Kubectl(s.Ctx(), "--namespace="+controllerNamespace, "delete", "pod", leader, "--wait=false")
	s.Must(err)
	second := s.localService("second")
	s.wantServices(second, nodes...)
	s.wantAnswers(nodes[:1], nodes, s.byName(first), s.byName(second))
	if now, err := currentLeader(s.Ctx()); err != nil || now == leader {
		t.Errorf("%s held the Lease, and now %s: %v", leader, now, err)
	}
	stop()
	s.Must(waitRollout(s.Ctx()))
}

// currentLeader returns the pod that holds the Lease.
func currentLeader(ctx context.Context) (string, error) {
	holder, err := cluster.Kubectl(ctx, "--namespace="+controllerNamespace, "get", "lease", controllerName,
		"--output=jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(holder, "_")
	return pod, err
}

// TestPermissions makes the controller do everything that it ever does. The other tests show that its permissions
// suffice. This one shows that it needs all of them.
func TestPermissions(t *testing.T) {
	s := newScene(t)
	s.deploy(1)
	ls := s.localService("demo")
	s.wantServices(ls, nodes...)
	pod, node := s.anyPod()
	s.WaitLabelled(pod, node)
	// An orphaned Service is adopted, after a check that the LocalService still exists.
	s.MustKubectl("patch", "service", ls.Name+"-"+nodes[0], "--type=merge",
		`--patch={"metadata":{"ownerReferences":null}}`)
	s.wantServices(ls, nodes...)
	s.MustKubectl("patch", "localservice", ls.Name, "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"nodeSelector":{%q:%q}}}`, corev1.LabelHostname, nodes[0]))
	s.wantServices(ls, nodes[0])
	s.writeSlices()

	account := "system:serviceaccount:" + controllerNamespace + ":" + controllerName
	granted := s.granted(account)
	s.Eventually("the controller has used all its permissions", func(context.Context) error {
		unused := maps.Clone(granted)
		for _, r := range s.Audit.Since(0) {
			if r.User.Username == account {
				delete(unused, r.Verb+" "+framework.Resource(&r))
			}
		}
		if len(unused) > 0 {
			return fmt.Errorf("it has never used: %v", slices.Sorted(maps.Keys(unused)))
		}
		return nil
	})
}

// writeSlices makes the controller do everything that it ever does to EndpointSlices.
func (s *scene) writeSlices() {
	s.T.Helper()
	names := s.hostnames("names")
	s.wantAnswers(nodes[:1], nodes, s.byHostname(names))
	const published = "--selector=" + v1alpha1.HostnamesLabelKey + "=" + v1alpha1.HostnamesPublished
	// The controller does not see one without its label until a write shows that the name is taken.
	s.MustKubectl("label", "endpointslices", published, v1alpha1.HostnamesLabelKey+"-")
	s.Eventually("the EndpointSlice has its label", func(context.Context) error {
		if s.MustKubectl("get", "endpointslices", published, "--output=name") == "" {
			return errors.New("it has not")
		}
		return nil
	})
	// Its successor has another name.
	s.MustKubectl("delete", "endpointslices",
		"--selector="+v1alpha1.HostnamesLabelKey+"="+v1alpha1.HostnamesSource)
	s.wantAnswers(nodes[:1], nodes, s.byHostname(names))
}

// granted returns the verbs and resources that the controller may use in its own namespace, where it has most
// permissions, through whatever role, except those that the audit log shows late or never.
func (s *scene) granted(account string) map[string]bool {
	s.T.Helper()
	all := "system:serviceaccounts"
	client := s.as(account, all, all+":"+controllerNamespace, "system:authenticated").AuthorizationV1()
	review, err := client.SelfSubjectRulesReviews().Create(s.Ctx(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: controllerNamespace},
	}, metav1.CreateOptions{})
	s.Must(err)
	granted := map[string]bool{}
	for _, rule := range review.Status.ResourceRules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				granted[verb+" "+resource] = true
			}
		}
	}
	if !granted["patch pods"] {
		s.Fatalf("the controller may not label pods; it may %v", granted)
	}
	maps.DeleteFunc(granted, func(permission string, _ bool) bool {
		verb, resource, _ := strings.Cut(permission, " ")
		return verb == "list" || verb == "watch" || // The log has a watch when it ends; a list may precede it.
			strings.HasPrefix(resource, "selfsubject") || // Everybody may ask what he may do.
			resource == "clustertrustbundles" || // Every ServiceAccount may read them, from Kubernetes 1.37 on.
			permission == "update localservices/finalizers" || // Asked for by an admission plug-in that is not on here.
			permission == "update services/finalizers" || // The same.
			permission == "patch events" // For events that come again and again.
	})
	return granted
}

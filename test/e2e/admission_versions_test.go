package e2e

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAdmissionUpgrade installs everything on Kubernetes 1.35: that reports what it does not know, and the rest works.
// Then the cluster is in the middle of an upgrade: one API server is new and has the policies, another one on the same
// data is still old. Whichever of them gets a request, pods can be bound, all get their label, and nobody can set a
// false one.
func TestAdmissionUpgrade(t *testing.T) {
	s := newAdmissionScene(t, "--apiserver-flag=--emulated-version=1.35")
	everything := framework.ModuleFile("artifacts", "with-admission")
	policies := framework.ModuleFile("artifacts", "admission")
	wantMissing := func(args ...string) {
		t.Helper()
		const missing = `no matches for kind "MutatingAdmissionPolicy" in version "admissionregistration.k8s.io/v1"`
		if _, err := s.Kubectl(t.Context(), args...); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%v: want an error that names what is missing, got %v", args, err)
		}
	}
	wantMissing("apply", "-k", everything)
	_, err := s.Kube.AppsV1().Deployments(controllerNamespace).Get(t.Context(), controllerName, metav1.GetOptions{})
	s.Must(err)
	s.waitPolicies(nodeLabel, probed{guard: true})
	s.grant("--clusterrole=admin")
	s.launchAsDeployed() // It has to get by with the guard alone.
	s.localService("demo")
	stale := map[string]string{nodeLabel: "k8s09"}
	for _, name := range []string{"from-before", "bound-by-old", "bound-by-new"} {
		s.Launch(barePod(name, "", stale))
	}
	s.BindPod("from-before", "k8s01", nil)
	s.Launch(barePod("made-before", "k8s03", stale))
	s.WaitLabelled("from-before", "k8s01")
	s.WaitLabelled("made-before", "k8s03")

	newer := s.in(t)
	newer.Cluster = s.NewSecondAPIServer(t, "--emulated-version")
	// as documented
	_, err = newer.Kubectl(t.Context(), "apply", "-k", everything)
	s.Must(err)
	newer.waitPolicies(nodeLabel, probed{true, true, true, true})
	newer.BindPod("bound-by-new", "k8s02", stale)
	newer.wantLabel(newer.GetPod("bound-by-new"), "k8s02")
	newer.wantLabel(newer.Launch(barePod("made-by-new", "k8s03", stale)), "k8s03")
	s.BindPod("bound-by-old", "k8s02", nil)
	s.WaitLabelled("bound-by-old", "k8s02")
	s.Launch(barePod("made-by-old", "k8s03", stale))
	s.WaitLabelled("made-by-old", "k8s03")
	lie := string(labelPatch(nodeLabel, "k8s09"))
	s.wantRefused("by the old server", s.patchAsMallory("bound-by-new", lie, ""), "it cannot be set to")
	s.wantRefused("by the new server", newer.patchAsMallory("bound-by-new", lie, ""), "it cannot be set to")
	for _, name := range []string{"bound-by-new", "made-by-new"} {
		if writes := s.Requests().Resource("pods").Name(name).Writes(); len(writes) > 0 {
			t.Errorf("the controller has written to %s: %s", name, writes)
		}
	}

	wantMissing("delete", "-k", policies)
	s.waitPolicies(nodeLabel, probed{})
	newer.MustKubectl("delete", "-k", policies, "--ignore-not-found")
	newer.waitPolicies(nodeLabel, probed{})
}

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAdmissionOlderServer installs everything on Kubernetes 1.35: what it does not know it says, and the rest works.
func TestAdmissionOlderServer(t *testing.T) {
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: append([]string{"--apiserver-flag=--emulated-version=1.35"}, withoutPodGC...)})
	everything, err := framework.ModuleFile("artifacts", "with-admission")
	s.Must(err)
	_, err = s.Kubectl(t.Context(), "apply", "-k", everything)
	if err == nil || !strings.Contains(err.Error(), `no matches for kind "MutatingAdmissionPolicy" in version "admissionregistration.k8s.io/v1"`) {
		t.Errorf("want an error that names what is missing, got %v", err)
	}
	if _, err := s.Kube.AppsV1().Deployments(controllerNamespace).Get(t.Context(), controllerName, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	want := []string{"validatingadmissionpolicies/local-service-node-label-guard", "validatingadmissionpolicybindings/local-service-node-label-guard"}
	if got := s.policies(); !slices.Equal(got, want) {
		t.Errorf("there are %v", got)
	}
	s.Eventually("the guard works", func(ctx context.Context) error {
		p, err := s.probe(ctx, nodeLabel)
		if err == nil && p != (probed{guard: true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})

	// As the controller itself, which has to get by with the guard alone.
	controller := s.LaunchController(t, "-kubeconfig="+s.AccountKubeconfig(t, controllerNamespace, controllerName), "-leader-elect=false")
	s.Must(controller.WaitReady(t.Context()))
	s.localService("demo")
	s.Launch(barePod("stale", "", map[string]string{nodeLabel: "k8s02"}))
	s.BindPod("stale", "k8s01", nil)
	s.Launch(barePod("with-node", "k8s03", nil))
	for name, node := range map[string]string{"stale": "k8s01", "with-node": "k8s03"} {
		s.WaitLabelled(name, node)
	}

	if _, err := s.Kubectl(t.Context(), "delete", "-k", admissionDir(t)); err == nil || !strings.Contains(err.Error(), "no matches for kind") {
		t.Errorf("want an error that names what is missing, got %v", err)
	}
	if left := s.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestAdmissionUpgrade is in the middle of an upgrade from Kubernetes 1.35 to 1.36, with everything installed: one API
// server is new and has the policies, another one on the same data is still old. Whichever a request comes to, pods can
// be bound, all get their label, and nobody can set a false one.
func TestAdmissionUpgrade(t *testing.T) {
	s := newAdmissionScene(t, framework.ClusterOptions{ControlPlaneOnly: true, Args: append([]string{"--apiserver-flag=--emulated-version=1.35"}, withoutPodGC...)})
	everything, err := framework.ModuleFile("artifacts", "with-admission")
	s.Must(err)
	_, _ = s.Kubectl(t.Context(), "apply", "-k", everything) // TestAdmissionOlderServer has what this says.
	controller := s.LaunchController(t, "-kubeconfig="+s.AccountKubeconfig(t, controllerNamespace, controllerName), "-leader-elect=false")
	s.Must(controller.WaitReady(t.Context()))
	s.localService("demo")
	stale := map[string]string{nodeLabel: "k8s09"}
	s.Launch(barePod("from-before", "", stale))
	s.BindPod("from-before", "k8s01", nil)
	s.Launch(barePod("bound-by-old", "", stale))
	s.Launch(barePod("bound-by-new", "", stale))
	s.WaitLabelled("from-before", "k8s01")

	newer := s.in(t)
	newer.Cluster = s.NewSecondAPIServer(t, "--emulated-version")
	_, err = newer.Kubectl(t.Context(), "--kubeconfig="+newer.Kubeconfig, "apply", "-k", everything) // As the documentation says to.
	s.Must(err)
	newer.Eventually("all policies work in the new server", func(ctx context.Context) error {
		p, err := newer.probe(ctx, nodeLabel)
		if err == nil && p != (probed{true, true, true}) {
			err = fmt.Errorf("those that work: %+v", p)
		}
		return err
	})
	newer.BindPod("bound-by-new", "k8s02", stale)
	newer.wantLabel(newer.GetPod("bound-by-new"), "k8s02")
	newer.wantLabel(newer.Launch(barePod("made-by-new", "k8s03", stale)), "k8s03")
	s.BindPod("bound-by-old", "k8s02", nil)
	s.Launch(barePod("made-by-old", "k8s03", stale))
	for name, node := range map[string]string{"from-before": "k8s01", "bound-by-old": "k8s02", "made-by-old": "k8s03"} {
		s.WaitLabelled(name, node)
	}
	for server, side := range map[string]*scene{"old": s, "new": newer} {
		_, err := side.Kube.CoreV1().Pods(s.Namespace).Patch(t.Context(), "bound-by-new", types.MergePatchType, labelPatch(nodeLabel, "k8s09"), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it cannot be set to") {
			t.Errorf("the %s server: want a false label refused, got %v", server, err)
		}
	}
	for _, name := range []string{"bound-by-new", "made-by-new"} {
		if writes := s.podWrites().Name(name); len(writes) > 0 {
			t.Errorf("the controller has written to %s: %s", name, writes)
		}
	}

	newer.MustKubectl("--kubeconfig="+newer.Kubeconfig, "delete", "-k", admissionDir(t))
	if left := newer.policies(); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if t.Failed() {
		t.Log(controller.Tail(40))
	}
}

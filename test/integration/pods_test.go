package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// wantPodUntouched fails unless a pod is as it was, to its resource version, and no write of it was even tried.
func (s *scene) wantPodUntouched(pod *corev1.Pod) {
	s.T.Helper()
	if now := s.GetPod(pod.Name); now.ResourceVersion != pod.ResourceVersion || now.UID != pod.UID {
		s.Fatalf("pod %s was changed: its labels were %v and are %v", pod.Name, pod.Labels, now.Labels)
	}
	if writes := s.Requests().Resource("pods").Name(pod.Name).Writes(); len(writes) > 0 {
		s.Fatalf("the controller wrote pod %s: %s", pod.Name, writes)
	}
}

// wantOnePatch fails unless a pod was patched once since the count was reset.
func (s *scene) wantOnePatch(pod string) {
	s.T.Helper()
	if writes := s.Requests().Resource("pods").Name(pod).Writes().String(); writes != "1 patch pods 200" {
		s.Fatalf("the controller's writes of pod %s: %s; want 1 patch", pod, writes)
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	app := map[string]string{"app": "demo"}
	longNode := func(s *scene) string { return s.NodeName(strings.Repeat("x", 70) + ".example.com") }
	dottedNode := func(s *scene) string { return s.NodeName("ip-10-0-0-3.ec2.internal") }
	plainNode := func(s *scene) string { return s.NodeName("a") }
	tests := []struct {
		name string
		node func(s *scene) string
		// do makes the pod named "pod", selected by LocalService demo and in the end on the node.
		do func(s *scene, node string)
	}{
		{"after the LocalService", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, app)
		}},
		{"before the LocalService", plainNode, func(s *scene, node string) {
			s.CreatePod("pod", node, app)
			s.Create("demo")
		}},
		{"scheduled later", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", "", app)
			s.BindPod("pod", node, nil)
		}},
		{"labelled for the application later", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, map[string]string{"app": "other"})
			s.PatchPod("pod", `{"metadata":{"labels":{"app":"demo"}}}`)
		}},
		{"selected later", plainNode, func(s *scene, node string) {
			s.CreateReady("demo", func(ls *v1alpha1.LocalService) {
				ls.Spec.Selector = map[string]string{"app": "other"}
			})
			s.CreatePod("pod", node, app)
			s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
		}},
		{"selected by several labels", plainNode, func(s *scene, node string) {
			s.CreateReady("demo", func(ls *v1alpha1.LocalService) {
				ls.Spec.Selector = map[string]string{"app": "demo", "tier": "web", "empty": ""}
			})
			s.CreatePod("pod", node, map[string]string{"app": "demo", "tier": "web", "empty": "", "more": "yes"})
		}},
		{"selected by two LocalServices", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreateReady("demo2", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
			s.CreatePod("pod", node, app)
		}},
		{"stale label from the template", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, map[string]string{"app": "demo", nodeLabel: "elsewhere"})
		}},
		{"empty label from the template", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, map[string]string{"app": "demo", nodeLabel: ""})
		}},
		{"running", plainNode, func(s *scene, node string) {
			s.CreatePod("pod", node, app)
			s.PatchPod("pod", `{"status":{"phase":"Running"}}`, "status")
			s.Create("demo")
		}},
		{"on the host's network", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, app, onHostNetwork)
		}},
		{"static, as its mirror pod", plainNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.createMirrorPod("pod", node, app)
		}},
		{"terminating", plainNode, func(s *scene, node string) {
			s.CreatePod("pod", node, app, withFinalizer)
			s.Must(s.PodClient().Delete(s.Ctx(), "pod", metav1.DeleteOptions{}))
			s.Create("demo")
		}},
		{"node with dots", dottedNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, app)
		}},
		{"node with a name too long for a label", longNode, func(s *scene, node string) {
			s.CreateReady("demo")
			s.CreatePod("pod", node, app)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "pod")
			f := s.newFence()
			node := test.node(s)
			s.CreateNode(node, nil)
			s.ResetCount()
			test.do(s, node)
			s.WaitLabelled("pod", node)
			f.passPods()
			f.passLocalServices()
			s.wantOnePatch("pod")
			// The label is what the node's Service selects.
			ls := s.WaitReady("demo")
			for _, service := range s.MustOwn(ls, 1) {
				if err := framework.Equal("selector", service.Spec.Selector[nodeLabel], s.GetPod("pod").Labels[nodeLabel]); err != nil {
					t.Error(err)
				}
			}
			if other := s.Requests().Resource("pods").Verb("get", "list", "watch"); len(other) > 0 {
				t.Errorf("the controller, which has its caches, also read: %s", other)
			}
		})
	}
}

// newLabelledPod makes a scene with the pod "pod", which has its label and is at rest.
func newLabelledPod(t *testing.T, name string) (s *scene, f *fence, node string) {
	t.Helper()
	s = newScene(t, shared, name)
	f = s.newFence()
	node = s.AddNodes("a")[0]
	s.CreateReady("demo")
	s.CreatePod("pod", node, map[string]string{"app": "demo"})
	s.WaitLabelled("pod", node)
	f.passPods()
	s.ResetCount()
	return s, f, node
}

// TestPodsLeftAlone tests the pods that the controller has no reason to write.
func TestPodsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podalone")
	elsewhere := newScene(t, shared, "podelsewhere")
	f := s.newFence()
	node := s.AddNodes("a")[0]
	app := map[string]string{"app": "demo"}
	completed := func(name, phase string) *corev1.Pod {
		s.CreatePod(name, node, app)
		s.PatchPod(name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
		return s.GetPod(name)
	}
	untouched := []*corev1.Pod{
		// Made while there is no LocalService.
		completed("succeeded", "Succeeded"),
		completed("failed", "Failed"),
		s.CreatePod("not-selected", node, map[string]string{"app": "other"}),
		s.CreatePod("without-labels", node, nil),
		s.CreatePod("stale-but-not-selected", node, map[string]string{"app": "other", nodeLabel: "elsewhere"}),
		s.CreatePod("half-selected", node, map[string]string{"app": "demo2"}),
		s.CreatePod("not-scheduled", "", app),
		s.CreatePod("right-from-the-start", node, map[string]string{"app": "demo", nodeLabel: node}),
		elsewhere.CreatePod("other-namespace", node, app),
	}
	s.ResetCount()
	elsewhere.ResetCount()
	s.CreateReady("demo")
	s.CreateReady("demo2", func(ls *v1alpha1.LocalService) {
		ls.Spec.Selector = map[string]string{"app": "demo2", "tier": "web"}
	})
	f.passPods()
	f.passLocalServices()
	for _, pod := range untouched {
		if pod.Namespace == s.Namespace {
			s.wantPodUntouched(pod)
		} else {
			elsewhere.wantPodUntouched(pod)
		}
	}
	t.Run("a label stays when the LocalService goes", func(t *testing.T) {
		s := s.in(t)
		s.CreatePod("pod", node, app)
		s.WaitLabelled("pod", node)
		pod := s.GetPod("pod")
		s.Must(s.LocalServiceClient().Delete(s.Ctx(), "demo", metav1.DeleteOptions{}))
		s.WaitServiceGone("demo-" + node)
		f.passLocalServices()
		f.passPods()
		if now := s.GetPod("pod"); now.ResourceVersion != pod.ResourceVersion {
			t.Errorf("the labels of the pod were %v and are %v", pod.Labels, now.Labels)
		}
	})
}

// TestPodsRecreated tests a pod that follows one of its name on another node, as those of StatefulSets do.
func TestPodsRecreated(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podanew")
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo")
	for range 5 {
		for _, node := range nodes {
			s.CreatePod("pod-0", node, map[string]string{"app": "demo"})
			s.WaitLabelled("pod-0", node)
			s.Must(s.PodClient().Delete(s.Ctx(), "pod-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			s.WaitGone("the pod", func(ctx context.Context) error {
				_, err := s.PodClient().Get(ctx, "pod-0", metav1.GetOptions{})
				return err
			})
		}
	}
}

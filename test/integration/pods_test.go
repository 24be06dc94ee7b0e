package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// createPod makes a pod, scheduled to a node unless that is "", with some changes.
func (s *scene) createPod(name, node string, labels map[string]string, changes ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "app", Image: "app"}},
			// Nothing runs it, so there is nothing to wait for when it is deleted.
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	for _, c := range changes {
		c(pod)
	}
	// The namespace's service account, which pods need, is made by another controller.
	var created *corev1.Pod
	s.eventually("pod "+name+" can be created", func(ctx context.Context) (err error) {
		created, err = s.pods().Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return created
}

// bindPod schedules a pod, as the scheduler does.
func (s *scene) bindPod(name, node string) {
	s.t.Helper()
	s.must(s.pods().Bind(s.ctx(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
}

// patchPod changes a pod with a JSON merge patch.
func (s *scene) patchPod(name, patch string, subresources ...string) {
	s.t.Helper()
	_, err := s.pods().Patch(s.ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "by-hand"}, subresources...)
	s.must(err)
}

func (s *scene) getPod(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := s.pods().Get(s.ctx(), name, metav1.GetOptions{})
	s.must(err)
	return pod
}

// waitLabelled waits until a pod has the node label of a node.
func (s *scene) waitLabelled(name, node string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("pod %s has the label of node %s", name, node), func(ctx context.Context) error {
		pod, err := s.pods().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return equal("label "+nodeLabel, pod.Labels[nodeLabel], naming.NodeLabelValue(node))
	})
}

// wantPodUntouched fails unless a pod is as it was, to its resource version, and no write of it was even tried.
func (s *scene) wantPodUntouched(pod *corev1.Pod) {
	s.t.Helper()
	if now := s.getPod(pod.Name); now.ResourceVersion != pod.ResourceVersion || now.UID != pod.UID {
		s.fatalf("pod %s was changed: its labels were %v and are %v", pod.Name, pod.Labels, now.Labels)
	}
	if writes := s.requests().Resource("pods").Name(pod.Name).Writes(); len(writes) > 0 {
		s.fatalf("the controller wrote pod %s: %s", pod.Name, writes)
	}
}

// wantOnePatch fails unless a pod was patched once since the count was reset.
func (s *scene) wantOnePatch(pod string) {
	s.t.Helper()
	if writes := s.requests().Resource("pods").Name(pod).Writes().String(); writes != "1 patch pods 200" {
		s.fatalf("the controller's writes of pod %s: %s; want 1 patch", pod, writes)
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	app := map[string]string{"app": "demo"}
	longNode := func(s *scene) string { return s.node(strings.Repeat("x", 70) + ".example.com") }
	dottedNode := func(s *scene) string { return s.node("ip-10-0-0-3.ec2.internal") }
	plainNode := func(s *scene) string { return s.node("a") }
	tests := []struct {
		name string
		node func(s *scene) string
		// do makes the pod named "pod", selected by LocalService demo and in the end on the node.
		do func(s *scene, node string)
	}{
		{"after the LocalService", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, app)
		}},
		{"before the LocalService", plainNode, func(s *scene, node string) {
			s.createPod("pod", node, app)
			s.create("demo")
		}},
		{"scheduled later", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", "", app)
			s.bindPod("pod", node)
		}},
		{"labelled for the application later", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, map[string]string{"app": "other"})
			s.patchPod("pod", `{"metadata":{"labels":{"app":"demo"}}}`)
		}},
		{"selected later", plainNode, func(s *scene, node string) {
			s.createReady("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = map[string]string{"app": "other"} })
			s.createPod("pod", node, app)
			s.update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
		}},
		{"selected by several labels", plainNode, func(s *scene, node string) {
			s.createReady("demo", func(ls *v1alpha1.LocalService) {
				ls.Spec.Selector = map[string]string{"app": "demo", "tier": "web", "empty": ""}
			})
			s.createPod("pod", node, map[string]string{"app": "demo", "tier": "web", "empty": "", "more": "yes"})
		}},
		{"selected by two LocalServices", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createReady("demo2", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
			s.createPod("pod", node, app)
		}},
		{"stale label from the template", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, map[string]string{"app": "demo", nodeLabel: "elsewhere"})
		}},
		{"empty label from the template", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, map[string]string{"app": "demo", nodeLabel: ""})
		}},
		{"running", plainNode, func(s *scene, node string) {
			s.createPod("pod", node, app)
			s.patchPod("pod", `{"status":{"phase":"Running"}}`, "status")
			s.create("demo")
		}},
		{"on the host's network", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, app, onHostNetwork)
		}},
		{"static, as its mirror pod", plainNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createMirrorPod("pod", node, app)
		}},
		{"terminating", plainNode, func(s *scene, node string) {
			s.createPod("pod", node, app, withFinalizer)
			s.must(s.pods().Delete(s.ctx(), "pod", metav1.DeleteOptions{}))
			s.create("demo")
		}},
		{"node with dots", dottedNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, app)
		}},
		{"node with a name too long for a label", longNode, func(s *scene, node string) {
			s.createReady("demo")
			s.createPod("pod", node, app)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "pod")
			f := s.newFence()
			node := test.node(s)
			s.createNode(node, nil)
			s.resetCount()
			test.do(s, node)
			s.waitLabelled("pod", node)
			f.passPods()
			f.passLocalServices()
			s.wantOnePatch("pod")
			// The label is what the node's Service selects.
			ls := s.waitReady("demo")
			for _, service := range s.mustOwn(ls, 1) {
				if err := equal("selector", service.Spec.Selector[nodeLabel], s.getPod("pod").Labels[nodeLabel]); err != nil {
					t.Error(err)
				}
			}
			if other := s.requests().Resource("pods").Verb("get", "list", "watch"); len(other) > 0 {
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
	node = s.addNodes("a")[0]
	s.createReady("demo")
	s.createPod("pod", node, map[string]string{"app": "demo"})
	s.waitLabelled("pod", node)
	f.passPods()
	s.resetCount()
	return s, f, node
}

func TestPodsLabelEditedByHand(t *testing.T) {
	t.Parallel()
	for name, patch := range map[string]string{
		"changed":                         `{"metadata":{"labels":{"vm/rack":"elsewhere"}}}`,
		"emptied":                         `{"metadata":{"labels":{"vm/rack":""}}}`,
		"removed":                         `{"metadata":{"labels":{"vm/rack":null}}}`,
		"changed with others, which stay": `{"metadata":{"labels":{"vm/rack":"elsewhere","more":"yes"},"annotations":{"more":"yes"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f, node := newLabelledPod(t, "podedit")
			s.patchPod("pod", patch)
			s.waitLabelled("pod", node)
			f.passPods()
			s.wantOnePatch("pod")
			pod := s.getPod("pod")
			want := map[string]string{"app": "demo", nodeLabel: node}
			if strings.Contains(patch, "more") {
				want["more"] = "yes"
				if pod.Annotations["more"] != "yes" {
					t.Errorf("the annotation of others is gone: %v", pod.Annotations)
				}
			}
			if err := equal("labels", pod.Labels, want); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPodsLeftAlone tests the pods that the controller has no reason to write.
func TestPodsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podalone")
	elsewhere := newScene(t, shared, "podelsewhere")
	f := s.newFence()
	node := s.addNodes("a")[0]
	app := map[string]string{"app": "demo"}
	completed := func(name, phase string) *corev1.Pod {
		s.createPod(name, node, app)
		s.patchPod(name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
		return s.getPod(name)
	}
	untouched := []*corev1.Pod{
		// Made while there is no LocalService.
		completed("succeeded", "Succeeded"),
		completed("failed", "Failed"),
		s.createPod("not-selected", node, map[string]string{"app": "other"}),
		s.createPod("without-labels", node, nil),
		s.createPod("stale-but-not-selected", node, map[string]string{"app": "other", nodeLabel: "elsewhere"}),
		s.createPod("half-selected", node, map[string]string{"app": "demo2"}),
		s.createPod("not-scheduled", "", app),
		s.createPod("right-from-the-start", node, map[string]string{"app": "demo", nodeLabel: node}),
		elsewhere.createPod("other-namespace", node, app),
	}
	s.resetCount()
	elsewhere.resetCount()
	s.createReady("demo")
	s.createReady("demo2", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = map[string]string{"app": "demo2", "tier": "web"} })
	f.passPods()
	f.passLocalServices()
	for _, pod := range untouched {
		if pod.Namespace == s.namespace {
			s.wantPodUntouched(pod)
		} else {
			elsewhere.wantPodUntouched(pod)
		}
	}
	t.Run("a label stays when the LocalService goes", func(t *testing.T) {
		s := s.in(t)
		s.createPod("pod", node, app)
		s.waitLabelled("pod", node)
		pod := s.getPod("pod")
		s.must(s.localServices().Delete(s.ctx(), "demo", metav1.DeleteOptions{}))
		s.waitServiceGone("demo-" + node)
		f.passLocalServices()
		f.passPods()
		if now := s.getPod("pod"); now.ResourceVersion != pod.ResourceVersion {
			t.Errorf("the labels of the pod were %v and are %v", pod.Labels, now.Labels)
		}
	})
}

// TestPodsMany tests that each pod is written once, however many there are at a time.
func TestPodsMany(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "pods")
	f := s.newFence()
	nodes := s.addNodes("a", "b", "c")
	const count = 60
	for i := range count / 2 {
		s.createPod(fmt.Sprintf("early-%d", i), nodes[i%len(nodes)], map[string]string{"app": "demo"})
	}
	s.create("demo")
	for i := range count / 2 {
		s.createPod(fmt.Sprintf("late-%d", i), nodes[i%len(nodes)], map[string]string{"app": "demo"})
	}
	s.eventually("all pods are labelled", func(ctx context.Context) error {
		pods, err := s.pods().List(ctx, metav1.ListOptions{LabelSelector: nodeLabel})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if err := equal("label of "+pod.Name, pod.Labels[nodeLabel], pod.Spec.NodeName); err != nil {
				return err
			}
		}
		return equal("number of pods with the label", len(pods.Items), count)
	})
	f.passPods()
	s.wantWrites("pods", fmt.Sprintf("%d patch pods 200", count))
}

// TestPodsRecreated tests a pod that follows one of its name on another node, as those of StatefulSets do.
func TestPodsRecreated(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "podanew")
	nodes := s.addNodes("a", "b")
	s.createReady("demo")
	for range 5 {
		for _, node := range nodes {
			s.createPod("pod-0", node, map[string]string{"app": "demo"})
			s.waitLabelled("pod-0", node)
			s.must(s.pods().Delete(s.ctx(), "pod-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			s.waitGone("the pod", func(ctx context.Context) error {
				_, err := s.pods().Get(ctx, "pod-0", metav1.GetOptions{})
				return err
			})
		}
	}
}

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestServiceDeletedByHand loses Services of both forms, which come back and lead to their nodes' pods again.
func TestServiceDeletedByHand(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	headless, virtual := s.localService("headless"), s.localService("virtual", withClusterIP)
	s.deploy(3)
	s.waitForPods(1, nodes...)
	for _, ls := range []*v1alpha1.LocalService{headless, virtual} {
		s.wantAnswers(nodes, nodes, s.byName(ls))
		before, err := s.services(s.ctx(), ls)
		s.must(err)
		name := serviceName(ls.Name, nodes[1])
		s.kubectl("delete", "service", name)
		s.eventually("Service "+name+" is back", func(ctx context.Context) error {
			now, err := cluster.Kube.CoreV1().Services(s.namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && now.UID == before[name].UID {
				err = fmt.Errorf("it still has the UID %s", now.UID)
			}
			return err
		})
		s.wantServices(ls, nodes...)
		s.wantAnswers(nodes, nodes, s.byName(ls))
	}
}

// TestLocalServiceDeleted takes the Services of a LocalService with it, and leaves alone those of all others, however
// similar they look.
func TestLocalServiceDeleted(t *testing.T) {
	t.Parallel()
	s, elsewhere := newScene(t), newScene(t)
	doomed, virtual := s.localService("demo"), s.localService("demo-virtual", withClusterIP)
	namesake := elsewhere.localService("demo")
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-k8s99", Labels: map[string]string{
			v1alpha1.OwnerLabelKey: doomed.Name, v1alpha1.DefaultNodeLabelKey: "k8s99",
		}},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: app, Ports: []corev1.ServicePort{{Port: appPort}}},
	}
	foreign, err := cluster.Kube.CoreV1().Services(s.namespace).Create(s.ctx(), foreign, metav1.CreateOptions{})
	s.must(err)
	s.deploy(3)
	s.waitForPods(1, nodes...)
	for _, ls := range []*v1alpha1.LocalService{doomed, virtual, namesake} {
		s.wantServices(ls, nodes...)
	}
	s.wantAnswers(nodes[:1], nodes, s.byName(doomed), s.byName(virtual))
	others, err := s.versionsHere(elsewhere, doomed)
	s.must(err)
	if got, want := others[s.namespace+"/"+foreign.Name], version(foreign); got != want {
		t.Errorf("the Service %s, which is not the controller's, is now %q; it was %q", foreign.Name, got, want)
	}

	s.kubectl("delete", "localservice", doomed.Name)
	s.eventually("its Services are gone", func(ctx context.Context) error {
		left, err := s.services(ctx, doomed)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d are left", len(left))
		}
		return err
	})
	s.eventually("its names are gone from DNS", func(ctx context.Context) error {
		answers, err := askNodes(ctx, nodes[0], nodes, s.byName(doomed))
		for node, n := range answers {
			if len(n.answers) > 0 {
				return fmt.Errorf("that of %s is still answered", node)
			}
		}
		return err
	})
	s.wantAnswers(nodes, nodes, s.byName(virtual))
	after, err := s.versionsHere(elsewhere, doomed)
	s.must(err)
	if !maps.Equal(others, after) {
		t.Errorf("Services of others were touched:\nbefore %v\nafter  %v", others, after)
	}
}

// versionsHere are the identities and versions of the Services of this scene, of another one, and of the cluster's own
// namespaces, but those that a LocalService controls.
func (s *scene) versionsHere(other *scene, but *v1alpha1.LocalService) (map[string]string, error) {
	found := map[string]string{}
	for _, namespace := range []string{s.namespace, other.namespace, metav1.NamespaceDefault, metav1.NamespaceSystem} {
		list, err := cluster.Kube.CoreV1().Services(namespace).List(s.ctx(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if service := &list.Items[i]; !metav1.IsControlledBy(service, but) {
				found[namespace+"/"+service.Name] = version(service)
			}
		}
	}
	return found, nil
}

func version(service *corev1.Service) string {
	return string(service.UID) + " " + service.ResourceVersion
}

// TestNodeSelector follows nodes that become eligible, and others that stop being so.
func TestNodeSelector(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	key := "e2e/" + s.namespace
	label := func(node, value string) {
		if _, err := cluster.Kubectl(context.Background(), "label", "--overwrite", "node", node, key+value); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			label(node, "-")
		}
	})
	ls := s.localService("demo", func(spec *v1alpha1.LocalServiceSpec) { spec.NodeSelector = map[string]string{key: "yes"} })
	s.deploy(3)
	s.waitForPods(1, nodes...)
	s.wantServices(ls)
	label(nodes[0], "=yes")
	s.wantServices(ls, nodes[0])
	label(nodes[2], "=yes")
	s.wantServices(ls, nodes[0], nodes[2])
	s.wantAnswers(nodes, []string{nodes[0], nodes[2]}, s.byName(ls))
	label(nodes[0], "=no")
	s.wantServices(ls, nodes[2])
	s.wantAnswers(nodes, []string{nodes[2]}, s.byName(ls))
	s.kubectl("patch", "localservice", ls.Name, "--type=merge", `--patch={"spec":{"nodeSelector":null}}`)
	s.wantServices(ls, nodes...)
	s.wantAnswers(nodes, nodes, s.byName(ls))
}

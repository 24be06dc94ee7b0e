package framework

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// WaitLocalService waits until a LocalService passes check, and returns it.
func (s *Scene) WaitLocalService(
	name, what string, check func(ls *v1alpha1.LocalService) error,
) *v1alpha1.LocalService {
	s.T.Helper()
	var ls *v1alpha1.LocalService
	s.Eventually(name+" "+what, func(ctx context.Context) (err error) {
		if ls, err = s.LocalServiceClient().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(ls)
	})
	return ls
}

// WaitReady waits until a LocalService reports that it is ready, as `kubectl wait` does, and counts all nodes that it
// selects: before a controller has observed a new node, it may report that the LocalService is ready.
func (s *Scene) WaitReady(name string) *v1alpha1.LocalService {
	s.T.Helper()
	return s.WaitLocalService(name, "is ready", func(ls *v1alpha1.LocalService) error {
		if err := CheckReady(ls); err != nil {
			return err
		}
		selected := metav1.ListOptions{LabelSelector: labels.Set(ls.Spec.NodeSelector).String()}
		nodes, err := s.Kube.CoreV1().Nodes().List(s.Ctx(), selected)
		if err != nil {
			return err
		}
		return Equal("status.nodes", int(ls.Status.Nodes), len(nodes.Items))
	})
}

// WaitStatusNodes waits until a LocalService is ready with a number of nodes.
func (s *Scene) WaitStatusNodes(name string, nodes int) *v1alpha1.LocalService {
	s.T.Helper()
	what := fmt.Sprintf("is ready with %d nodes", nodes)
	return s.WaitLocalService(name, what, func(ls *v1alpha1.LocalService) error {
		return errors.Join(CheckReady(ls), Equal("status.nodes", int(ls.Status.Nodes), nodes))
	})
}

// WaitNotReady waits until a LocalService reports that it is not ready, for a reason, any for "", and with these words.
func (s *Scene) WaitNotReady(name, reason, says string) *v1alpha1.LocalService {
	s.T.Helper()
	return s.WaitLocalService(name, "is not ready: "+reason, func(ls *v1alpha1.LocalService) error {
		err := CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, reason)
		if c := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionReady); err == nil &&
			!strings.Contains(c.Message, says) {
			err = fmt.Errorf("the message %q does not say %q", c.Message, says)
		}
		return err
	})
}

// CheckReady returns nil if a LocalService reports that it is ready, or that only nodes to select are missing.
func CheckReady(ls *v1alpha1.LocalService) error {
	if ls.Status.Nodes == 0 { // It is as ready as it can be.
		return errors.Join(
			CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNoNodesSelected),
			CheckCondition(ls, v1alpha1.ConditionProgressing, metav1.ConditionFalse, ""),
		)
	}
	return errors.Join(
		CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionTrue, ""),
		CheckCondition(ls, v1alpha1.ConditionProgressing, metav1.ConditionFalse, ""),
		CheckCondition(ls, v1alpha1.ConditionConflicted, metav1.ConditionFalse, ""),
		Equal("status.services", int(ls.Status.Services), services(ls)),
	)
}

// services returns how many Services a LocalService has when all are in place.
func services(ls *v1alpha1.LocalService) int {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return 2
	}
	return int(ls.Status.Nodes)
}

// CheckCondition compares a condition, which must be about the LocalService's current spec. "" stands for any reason.
func CheckCondition(ls *v1alpha1.LocalService, name string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(ls.Status.Conditions, name)
	if c == nil {
		return fmt.Errorf("there is no condition %s", name)
	}
	if c.Status != status || reason != "" && c.Reason != reason {
		return fmt.Errorf("condition %s is %s (%s: %s); want %s (%s)",
			name, c.Status, c.Reason, c.Message, status, reason)
	}
	return errors.Join(
		Equal("status.observedGeneration", ls.Status.ObservedGeneration, ls.Generation),
		Equal("observedGeneration of condition "+name, c.ObservedGeneration, ls.Generation),
	)
}

// OwnedServices returns the Services that a LocalService controls, by name.
func (s *Scene) OwnedServices(ctx context.Context, ls *v1alpha1.LocalService) (map[string]*corev1.Service, error) {
	list, err := s.Kube.CoreV1().Services(ls.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	owned := map[string]*corev1.Service{}
	for i := range list.Items {
		if service := &list.Items[i]; metav1.IsControlledBy(service, ls) {
			owned[service.Name] = service
		}
	}
	return owned, nil
}

// MustOwn returns the Services that a LocalService controls, by name. It fails unless there are count.
func (s *Scene) MustOwn(ls *v1alpha1.LocalService, count int) map[string]*corev1.Service {
	s.T.Helper()
	owned, err := s.OwnedServices(s.Ctx(), ls)
	s.Must(err)
	if len(owned) != count {
		s.Fatalf("%s controls %d Services; want %d", ls.Name, len(owned), count)
	}
	return owned
}

// WaitServices waits until a LocalService, which need not be ready, controls the Services of these names and no others.
func (s *Scene) WaitServices(ls *v1alpha1.LocalService, names ...string) {
	s.T.Helper()
	names = slices.Sorted(slices.Values(names))
	s.Eventually(fmt.Sprintf("%s controls exactly %v", ls.Name, names), func(ctx context.Context) error {
		owned, err := s.OwnedServices(ctx, ls)
		if err != nil {
			return err
		}
		return Equal("number and names", fmt.Sprint(slices.Sorted(maps.Keys(owned))), fmt.Sprint(names))
	})
}

// WaitService waits until there is a Service with a name, and with another UID than before, "" for none.
func (s *Scene) WaitService(name string, before types.UID) {
	s.T.Helper()
	s.Eventually("Service "+name+" exists, and is another one", func(ctx context.Context) error {
		service, err := s.ServiceClient().Get(ctx, name, metav1.GetOptions{})
		if err == nil && service.UID == before {
			err = errors.New("it is still the old one")
		}
		return err
	})
}

// isGone returns nil if the result is that there is no such object.
func isGone[T any](_ T, err error) error {
	switch {
	case err == nil:
		return errors.New("it is still there")
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}

// WaitServiceGone waits until there is no Service with a name.
func (s *Scene) WaitServiceGone(name string) {
	s.T.Helper()
	s.Eventually("Service "+name+" is gone", func(ctx context.Context) error {
		return isGone(s.ServiceClient().Get(ctx, name, metav1.GetOptions{}))
	})
}

// WaitLabelled waits until a pod has the node label of a node.
func (s *Scene) WaitLabelled(name, node string) {
	s.T.Helper()
	const key = v1alpha1.DefaultNodeLabelKey
	s.Eventually(fmt.Sprintf("pod %s has the label of node %s", name, node), func(ctx context.Context) error {
		pod, err := s.PodClient().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return Equal("label "+key, pod.Labels[key], naming.NodeLabelValue(node))
	})
}

// Events returns the events about an object of this scene with a reason.
func (s *Scene) Events(ctx context.Context, name, reason string) ([]corev1.Event, error) {
	about := metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason}
	list, err := s.Kube.CoreV1().Events(s.Namespace).List(ctx, about)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Equal returns an error with the difference, nil for none.
func Equal[T any](what string, got, want T) error {
	g, err1 := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if string(g) != string(w) {
		return fmt.Errorf("%s: got %s; want %s", what, g, w)
	}
	return nil
}

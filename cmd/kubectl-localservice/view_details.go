package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/view"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// podsWithEvents is for how many pods of a cell events are read, and eventsOfEach how many events for each.
	podsWithEvents = 4
	eventsOfEach   = 100
)

// details returns all that is known about a cell, nil if there is none. The page shows the details of one cell at a
// time, so they are computed again rather than kept for 5,000 nodes and 100 LocalServices.
func (c *cluster) details(ctx context.Context, w *watcher, column, row string) *view.Details {
	namespace, name, _ := strings.Cut(column, "/")
	list := w.list(ctx, types.NamespacedName{Namespace: namespace, Name: name})
	if list == nil {
		return nil
	}
	for i := range list.Items {
		if n := &list.Items[i]; view.Row(list, n) == row {
			d := &view.Details{Node: n, Pods: w.podsOf(namespace, n), Events: []view.Event{}}
			events, err := c.events(ctx, namespace, name, n)
			if err != nil {
				d.EventsProblem = explained(err).Error()
			} else {
				d.Events = view.NewEvents(events)
			}
			return d
		}
	}
	return nil
}

func (w *watcher) podsOf(namespace string, n *diagnose.Node) []view.Pod {
	pods := []view.Pod{}
	for _, known := range n.Pods {
		object, found, _ := w.pods.GetIndexer().GetByKey(namespace + "/" + known.Name)
		if found {
			pods = append(pods, view.NewPod(known, object.(*corev1.Pod)))
		}
	}
	return pods
}

// events reads the events of the LocalService, and of the first pods of a cell, those not ready first.
func (c *cluster) events(ctx context.Context, namespace, name string, n *diagnose.Node) ([]corev1.Event, error) {
	objects := []corev1.ObjectReference{{Kind: v1alpha1.Kind, Name: name}}
	for _, ready := range []bool{false, true} {
		for _, pod := range n.Pods {
			if pod.Ready == ready && len(objects) <= podsWithEvents {
				objects = append(objects, corev1.ObjectReference{Kind: "Pod", Name: pod.Name})
			}
		}
	}
	lists := make([][]corev1.Event, len(objects))
	reading, ctx := errgroup.WithContext(ctx)
	for i, object := range objects {
		reading.Go(func() error {
			of := fields.Set{"involvedObject.kind": object.Kind, "involvedObject.name": object.Name}
			list, err := c.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
				FieldSelector: of.AsSelector().String(), Limit: eventsOfEach})
			if err != nil {
				return fmt.Errorf("list the events of %s %s/%s: %w", object.Kind, namespace, object.Name, err)
			}
			lists[i] = list.Items
			return nil
		})
	}
	err := reading.Wait()
	var events []corev1.Event
	for _, list := range lists {
		events = append(events, list...)
	}
	return events, err
}

// places returns where the nodes are.
func (w *watcher) places() map[string]*view.Place {
	places := map[string]*view.Place{}
	for _, node := range inNamespace[corev1.Node](w.nodes, metav1.NamespaceAll) {
		if place := view.NewPlace(node.Labels); place != (view.Place{}) {
			places[node.Name] = &place
		}
	}
	return places
}

// kubectl returns the kubectl command, with those flags of this command that choose the cluster.
func (p *plugin) kubectl() []string {
	command := []string{"kubectl"}
	for _, flag := range []struct {
		name  string
		value *string
	}{{"--kubeconfig", p.config.KubeConfig}, {"--context", p.config.Context}, {"--cluster", p.config.ClusterName},
		{"--server", p.config.APIServer}, {"--user", p.config.AuthInfoName}} {
		if flag.value != nil && *flag.value != "" {
			command = append(command, flag.name+"="+*flag.value)
		}
	}
	return command
}

package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

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
func (o *objects) details(ctx context.Context, column, row string) *view.Details {
	object, found, _ := o.localServices.GetIndexer().GetByKey(column)
	if !found {
		return nil
	}
	ls := object.(*v1alpha1.LocalService)
	list := o.list(ctx, ls, o.input(ls.Namespace))
	i := slices.IndexFunc(list.Items, func(n diagnose.Node) bool { return view.Row(list, &n) == row })
	if i < 0 {
		return nil
	}
	n := &list.Items[i]
	d := &view.Details{Node: n, Pods: []view.Pod{}, Events: []view.Event{}}
	for _, known := range n.Pods {
		if object, found, _ := o.pods.GetIndexer().GetByKey(ls.Namespace + "/" + known.Name); found {
			d.Pods = append(d.Pods, view.NewPod(known, object.(*corev1.Pod)))
		}
	}
	events, err := o.events(ctx, ls, n)
	if err != nil {
		d.EventsProblem = explained(err).Error()
	} else {
		d.Events = view.NewEvents(events)
	}
	return d
}

// events reads the events of the LocalService, and of the first pods of a cell, those not ready first.
func (c *cluster) events(ctx context.Context, ls *v1alpha1.LocalService, n *diagnose.Node) ([]corev1.Event, error) {
	objects := []corev1.ObjectReference{{Kind: v1alpha1.Kind, Name: ls.Name}}
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
			list, err := c.kube.CoreV1().Events(ls.Namespace).List(ctx, metav1.ListOptions{
				FieldSelector: of.AsSelector().String(), Limit: eventsOfEach})
			if err != nil {
				return fmt.Errorf("list the events of %s %s/%s: %w", object.Kind, ls.Namespace, object.Name, err)
			}
			lists[i] = list.Items
			return nil
		})
	}
	err := reading.Wait()
	return slices.Concat(lists...), err
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

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/view"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func newViewCommand(f *factory) *cobra.Command {
	var chosen choice
	cmd := &cobra.Command{
		Use:   "view [NAME]",
		Short: "Look at LocalServices in a browser, as they change",
		Long: `Serve a page that shows the LocalServices of a namespace, or one of them, by node: which names answer,
which do not, and why. It follows what changes, until Ctrl-C. It shows what you may see yourself, on 127.0.0.1, to those
who have the whole address that is printed, and changes nothing.`,
		Example: `  # The LocalServices of all namespaces
  kubectl localservice view -A

  # On a machine that you reach by ssh: forward the port, and open the address on your own
  ssh -L 40123:127.0.0.1:40123 bastion`,
		ValidArgsFunction: f.completion(completeName),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen.complete(args)
			if err := chosen.validate(); err != nil {
				return err
			}
			return f.view(cmd.Context(), chosen)
		},
	}
	chosen.addFlags(cmd)
	return cmd
}

func (f *factory) view(ctx context.Context, chosen choice) error {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	read, err := f.readAll(ctx, chosen)
	if err != nil {
		return err
	}
	config, _ := f.config.ToRawKubeConfigLoader().RawConfig() // It was good enough to connect.
	scope := view.Scope{Context: cmp.Or(ptr.Deref(f.config.Context, ""), config.CurrentContext),
		Namespace: read.namespace, Flags: f.flagsOfCluster()}
	if read.one != nil {
		scope.Name = read.one.Name
	}
	if !read.allNodes {
		scope.Notice = "You may not list nodes: some may be missing here."
	}
	server, err := view.NewServer(scope, read.details)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.Out, "Serving at %s\nEnd with Ctrl-C.\n", server.URL())
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return server.Run(ctx) })
	read.follow(ctx, func(s snapshot) {
		server.Publish(view.NewMatrix(s.Status, s.lists, inNamespace[corev1.Node](read.nodes, metav1.NamespaceAll)))
	})
	return running.Wait()
}

// details returns all that is known about a cell, nil if there is none. The page shows the details of one cell at a
// time, so they are computed again rather than kept for 5,000 nodes and 100 LocalServices.
func (o *reader) details(ctx context.Context, column, row string) *view.Details {
	object, found, _ := o.localServices.GetIndexer().GetByKey(column)
	if !found {
		return nil
	}
	ls := object.(*v1alpha1.LocalService)
	list := o.list(ctx, ls, o.input(ls.Namespace))
	i := slices.IndexFunc(list.Items, func(n *diagnose.Node) bool { return view.Row(list, n) == row })
	if i < 0 {
		return nil
	}
	n := list.Items[i]
	events, err := o.events(ctx, ls, n)
	d := &view.Details{Node: n, Events: events}
	if err != nil {
		d.EventsProblem = explainError(err).Error()
	}
	return d
}

// events reads the events of the LocalService, its Services, and the first four pods of a cell, those not ready first.
func (c *cluster) events(ctx context.Context, ls *v1alpha1.LocalService, n *diagnose.Node) ([]corev1.Event, error) {
	var all []corev1.Event
	objects := []corev1.ObjectReference{{Kind: v1alpha1.Kind, Name: ls.Name},
		{Kind: "Service", Name: cmp.Or(n.Service, ls.Name)},
		{Kind: "Service", Name: plan.ServiceName(ls.Name, plan.Source, "")}}
	for _, ready := range []bool{false, true} {
		for _, pod := range n.Pods {
			if pod.Ready == ready && len(objects) < 7 {
				objects = append(objects, corev1.ObjectReference{Kind: "Pod", Name: pod.Name})
			}
		}
	}
	for _, object := range objects {
		object.Namespace = ls.Namespace
		list, err := c.kube.CoreV1().Events(ls.Namespace).SearchWithContext(ctx, scheme.Scheme, &object)
		if err != nil {
			return all, fmt.Errorf("list the events of %s %s/%s: %w", object.Kind, ls.Namespace, object.Name, err)
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

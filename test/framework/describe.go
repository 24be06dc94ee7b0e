package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// describeTimeout bounds the description of a cluster, which may be what has failed.
	describeTimeout = 10 * time.Second
	// describedObjects is how many objects of each kind are described; the others are counted.
	describedObjects = 30
	// describedLines is how many lines of each controller's log are shown: of those that name the namespace, and at the
	// end.
	describedLines = 40
)

// Describe returns the state of a namespace, or of all for "": LocalServices, Services, nodes, pods, events, the
// requests of the controllers, and the ends of their logs.
func (c *Cluster) Describe(namespace string) string {
	// The test's own context may be done.
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	var b strings.Builder
	all := metav1.ListOptions{}

	localServices, err := c.LocalServices.LocalserviceV1alpha1().LocalServices(namespace).List(ctx, all)
	section(&b, "LocalServices", err, localServices.Items, func(i int) string {
		ls := &localServices.Items[i]
		return fmt.Sprintf("%s generation=%d%s spec=%s status=%s",
			id(ls), ls.Generation, deleting(ls), compact(ls.Spec), compact(ls.Status))
	})
	services, err := c.Kube.CoreV1().Services(namespace).List(ctx, all)
	section(&b, "Services", err, services.Items, func(i int) string {
		s := &services.Items[i]
		return fmt.Sprintf("%s%s labels=%v annotations=%v owners=%s spec=%s",
			id(s), deleting(s), s.Labels, s.Annotations, compact(s.OwnerReferences), compact(s.Spec))
	})
	nodes, err := c.Kube.CoreV1().Nodes().List(ctx, all)
	section(&b, "Nodes", err, nodes.Items, func(i int) string {
		return fmt.Sprintf("%s labels=%v", id(&nodes.Items[i]), nodes.Items[i].Labels)
	})
	pods, err := c.Kube.CoreV1().Pods(namespace).List(ctx, all)
	section(&b, "Pods", err, pods.Items, func(i int) string {
		p := &pods.Items[i]
		return fmt.Sprintf("%s%s node=%q phase=%s "+
			"labels=%v", id(p), deleting(p), p.Spec.NodeName, p.Status.Phase, p.Labels)
	})
	endpointSlices, err := c.Kube.DiscoveryV1().EndpointSlices(namespace).List(ctx, all)
	section(&b, "EndpointSlices", err, endpointSlices.Items, func(i int) string {
		return fmt.Sprintf("%s endpoints=%s", id(&endpointSlices.Items[i]), compact(endpointSlices.Items[i].Endpoints))
	})
	events, err := c.Kube.CoreV1().Events(namespace).List(ctx, all)
	section(&b, "Events", err, events.Items, func(i int) string { return describeEvent(&events.Items[i]) })

	requests := c.Audit.Since(0).ByController()
	if namespace != "" {
		requests = requests.Namespace(namespace)
	}
	fmt.Fprintf(&b, "--- Requests of the controllers: %s\n", requests)
	for i, controller := range c.Controllers() {
		state := "running"
		if !controller.Running() {
			state = controller.cmd.ProcessState.String()
		}
		if namespace != "" {
			lines := strings.Join(controller.LogLines(namespace), "\n")
			fmt.Fprintf(&b, "--- Log of controller %d, about %s:\n%s\n", i, namespace, LastLines(lines, describedLines))
		}
		fmt.Fprintf(&b, "--- Log of controller %d (%s), its end:\n%s\n", i, state, controller.Tail(describedLines))
	}
	c.describeDeployed(ctx, &b)
	return b.String()
}

// describeDeployed shows the ends of the logs of the controllers that run in the cluster.
func (c *Cluster) describeDeployed(ctx context.Context, b *strings.Builder) {
	ours := metav1.ListOptions{LabelSelector: "app=local-service-controller"}
	pods, err := c.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, ours)
	section(b, "Controllers in the cluster", err, pods.Items, func(i int) string {
		pod := &pods.Items[i]
		end := &corev1.PodLogOptions{TailLines: new(int64(describedLines))}
		log, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, end).DoRaw(ctx)
		if err != nil {
			log = []byte(err.Error())
		}
		return fmt.Sprintf("%s node=%q phase=%s\n%s", id(pod), pod.Spec.NodeName, pod.Status.Phase, log)
	})
}

// section describes objects, one to a line.
func section[T any](b *strings.Builder, title string, err error, objects []T, describe func(i int) string) {
	fmt.Fprintf(b, "--- %s: %d\n", title, len(objects))
	if err != nil {
		fmt.Fprintf(b, "cannot be listed: %v\n", err)
	}
	for i := range objects[:min(len(objects), describedObjects)] {
		fmt.Fprintln(b, describe(i))
	}
	if more := len(objects) - describedObjects; more > 0 {
		fmt.Fprintf(b, "and %d more\n", more)
	}
}

func describeEvent(e *corev1.Event) string {
	return fmt.Sprintf("%s %s %s about %s/%s: %s",
		e.EventTime.Format(time.TimeOnly), e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
}

func id(o metav1.Object) string {
	return fmt.Sprintf("%s/%s uid=%s rv=%s", o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion())
}

func deleting(o metav1.Object) string {
	if o.GetDeletionTimestamp() == nil {
		return ""
	}
	return fmt.Sprintf(" being deleted, finalizers=%v", o.GetFinalizers())
}

func compact(object any) string {
	b, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

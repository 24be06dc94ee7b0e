package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
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

// described are the resources whose objects Describe shows, with the fields beside the metadata.
var described = []struct {
	resource schema.GroupVersionResource
	fields   []string
}{
	{v1alpha1.SchemeGroupVersion.WithResource("localservices"), []string{"spec", "status"}},
	{corev1.SchemeGroupVersion.WithResource("services"), []string{"spec"}},
	{corev1.SchemeGroupVersion.WithResource("nodes"), nil},
	{corev1.SchemeGroupVersion.WithResource("pods"), []string{"status"}},
	{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), []string{"endpoints"}},
	{eventsv1.SchemeGroupVersion.WithResource("events"), []string{"type", "reason", "regarding", "note", "series"}},
}

// Describe returns the state of a namespace, or of all for "": objects, the requests of the controllers, and the ends
// of their logs.
func (c *Cluster) Describe(namespace string) string {
	// The test's own context may be done.
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	var b strings.Builder
	for _, d := range described {
		in := namespace
		if d.resource.Resource == "nodes" {
			in = metav1.NamespaceAll
		}
		list, err := c.Dynamic.Resource(d.resource).Namespace(in).List(ctx, metav1.ListOptions{})
		if err != nil {
			fmt.Fprintf(&b, "--- %s cannot be listed: %v\n", d.resource.Resource, err)
			continue
		}
		fmt.Fprintf(&b, "--- %s: %d\n", d.resource.Resource, len(list.Items))
		for i := range list.Items[:min(len(list.Items), describedObjects)] {
			list.Items[i].SetManagedFields(nil)
			for _, field := range append([]string{"metadata"}, d.fields...) {
				text, _ := json.Marshal(list.Items[i].Object[field]) // It was decoded.
				fmt.Fprintf(&b, "%s=%s ", field, text)
			}
			fmt.Fprintln(&b)
		}
	}

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
	fmt.Fprintf(b, "--- Controllers in the cluster: %d, %v\n", len(pods.Items), err)
	for _, pod := range pods.Items {
		end := &corev1.PodLogOptions{TailLines: new(int64(describedLines))}
		log, err := c.Kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, end).DoRaw(ctx)
		fmt.Fprintf(b, "%s node=%q phase=%s %v\n%s", pod.Name, pod.Spec.NodeName, pod.Status.Phase, err, log)
	}
}

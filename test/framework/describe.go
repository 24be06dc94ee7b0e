package framework

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// describeTimeout bounds the description of a cluster, which may be what has failed.
	describeTimeout = 10 * time.Second
	// describedLines is how many lines of each controller's log are shown: of those that name the namespace, and at the
	// end. describedText is how much of anything else.
	describedLines, describedText = 40, 20000
)

// Describe returns the state of a namespace, or of all for "": objects, the requests of the controllers, and the ends
// of their logs.
func (c *Cluster) Describe(namespace string) string {
	// The test's own context may be done.
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
	defer cancel()
	var b strings.Builder
	in := "--namespace=" + namespace
	if namespace == "" {
		in = "--all-namespaces"
	}
	for _, args := range [][]string{
		{"get", "localservices,services,nodes,pods,endpointslices,events", in, "--output=wide"},
		{"get", "localservices,services", in, "--output=yaml"},
		{"logs", "--selector=app=local-service-controller", "--namespace=" + ControllerNamespace, "--prefix",
			fmt.Sprint("--tail=", describedLines)}, // of those that run in the cluster
	} {
		out, err := c.Kubectl(ctx, args...)
		fmt.Fprintf(&b, "--- kubectl %s: %v\n%.*s\n", strings.Join(args, " "), err, describedText, out)
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
	return b.String()
}

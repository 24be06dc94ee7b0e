package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestUnguarded: a controller that begins to lead says in its log, its metric, its Lease and so in the plugin what the
// guard does not protect, whatever is the reason, and says nothing where all is well, or with -guard=false.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	options := publisher()
	options.WithoutGuard = true
	cluster := framework.NewCluster(t, options)
	s := newScene(t, cluster, "unguarded")
	node := s.AddNodes("a")[0]
	guard := framework.ModuleFile("artifacts", "deploy", "guard.yaml")
	const name, complaint = framework.ControllerAccount, "The guard is not in force for this account"
	for _, step := range []struct {
		what string
		do   func()
		want string
		args []string
	}{
		{"the guard was never installed", func() {}, "services,endpointslices", nil},
		{"there is a pod", func() { s.CreatePod("pod", node, app) }, "pods,services,endpointslices", nil},
		{"it was left out on purpose", func() {}, "", []string{"-guard=false"}},
		{"it is in force", func() { s.Must(cluster.InstallGuard(s.Ctx())) }, "", nil},
		{"a binding is deleted", func() {
			s.MustKubectl("delete", "validatingadmissionpolicybinding", name+"-guard-pods")
		}, "pods", nil},
		{"a policy names another account", func() {
			s.MustKubectl("patch", "validatingadmissionpolicy", name+"-guard-services", "--type=json", `--patch=[{"op":
				"replace", "path": "/spec/matchConditions/0/expression", "value": "request.userInfo.username == 'a'"}]`)
		}, "pods,services", nil},
		{"it is applied again", func() {
			s.MustKubectl("apply", "--server-side", "--force-conflicts", "-f", guard)
			s.Must(cluster.InstallGuard(s.Ctx()))
		}, "", nil},
	} {
		step.do()
		mark := cluster.Audit.Mark()
		controller := s.NewController(t, append([]string{"-guard"}, append(step.args, "-leader-elect", "-leader-election-namespace="+
			framework.ControllerNamespace)...)...)
		if step.what == "the guard was never installed" {
			s.CreateReady("demo") // From now on, pods are watched.
		}
		if len(step.args) == 0 {
			s.Eventually(step.what+": the guard is tried", func(context.Context) error {
				isTrial := func(r *framework.Request) bool { return strings.Contains(r.RequestURI, "dryRun=") }
				return atLeast(len(cluster.Audit.Since(mark).ByController().Where(isTrial)), 2)
			})
		}
		s.Eventually(step.what, func(ctx context.Context) error {
			lease, err1 := s.Kube.CoordinationV1().Leases(framework.ControllerNamespace).Get(ctx, name, metav1.GetOptions{})
			_, body, err2 := controller.Get(ctx, "/metrics")
			_, errOut, err3 := framework.PluginProgram.Run(ctx, nil, []string{"KUBECONFIG=" + cluster.Kubeconfig}, "nodes",
				"-n", s.Namespace)
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			resources := strings.FieldsFunc(step.want, func(r rune) bool { return r == ',' })
			logged := controller.LogLines(complaint, `resources=["`+strings.Join(resources, `","`)+`"]`)
			return errors.Join(
				framework.Equal("the annotation", lease.Annotations[v1alpha1.UnguardedAnnotationKey], step.want),
				framework.Equal("the metric", strings.Contains(body, fmt.Sprintf("\nlocalservice_unguarded_resources %d\n",
					len(resources))), true),
				framework.Equal("the lines of the log", len(logged), min(len(resources), 1)),
				framework.Equal("all complaints", len(controller.LogLines(complaint)), min(len(resources), 1)),
				framework.Equal("what the plugin says", strings.Contains("\n"+errOut, "\nThe guard is not in force for the "+
					"controller's account ("+step.want+"): "), step.want != ""))
		})
		s.Must(controller.Stop())
	}

	// The guard still names the default node label.
	s.NewController(t, "-node-label-key=example.com/node")
	s.Eventually("an event says which key is wrong", func(ctx context.Context) error {
		events, err := s.Events(ctx, "demo", "NodeLabelRefused")
		if err == nil && (len(events) == 0 || !strings.Contains(events[0].Message, "the guard still names the label "+
			"vm/rack, and the controller writes example.com/node: give the guard the key of -node-label-key")) {
			err = fmt.Errorf("the events are %v", events)
		}
		return err
	})
}

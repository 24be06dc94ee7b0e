package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// wantRetired waits until LocalService demo has only these Services. It fails if those of the previous mode were
// deleted before negative DNS caches have expired, or much later. The new names answer since the last of some requests.
func (s *scene) wantRetired(ls *v1alpha1.LocalService, answer func() framework.Requests, services ...string) {
	s.T.Helper()
	s.WaitServices(ls, services...)
	s.WaitReady("demo")
	gone := s.Requests().Resource("services").Verb("delete").Where(framework.Succeeded).First()
	stayed := gone.Sub(answer().Last())
	if stayed < plan.RetireAfter || stayed > plan.RetireAfter+busy*5*time.Second {
		s.Fatalf("the Services of the previous mode stayed for %v after the new names; want %v", stayed,
			plan.RetireAfter)
	}
	s.waitRetiring("")
}

// waitRetiring waits until the condition Retiring of LocalService demo has a status, or is absent for "".
func (s *scene) waitRetiring(want metav1.ConditionStatus) {
	s.T.Helper()
	s.WaitLocalService("demo", fmt.Sprintf("has the condition Retiring: %q", want),
		func(ls *v1alpha1.LocalService) error {
			c := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionRetiring)
			if c == nil {
				c = &metav1.Condition{}
			}
			return errors.Join(framework.Equal("Retiring", c.Status, want),
				framework.Equal("observedGeneration", ls.Status.ObservedGeneration, ls.Generation))
		})
}

// answering returns the controllers' requests that have made new names answer.
func (s *scene) answering(resource string) func() framework.Requests {
	return func() framework.Requests { return s.Requests().Resource(resource).Verb("create") }
}

// TestHostnamesChangeOfMode changes the mode in both directions.
func TestHostnamesChangeOfMode(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "mode")
	nodes := s.AddNodes("a", "b")
	ls := s.CreateReady("demo")
	s.run("a", nodes[0], "10.1.0.1")
	s.run("b", nodes[1], "10.1.0.2")
	ofNodes := []string{"demo-" + nodes[0], "demo-" + nodes[1]}
	s.waitReadyNodes("2/2")
	s.ResetCount()
	s.Update("demo", framework.WithHostnames)
	s.wantNames("a=10.1.0.1", "b=10.1.0.2")
	s.waitRetiring(metav1.ConditionTrue)
	s.WaitServices(ls, append(ofNodes, "demo", sourceName)...)
	s.wantRetired(ls, s.answering("endpointslices"), "demo", sourceName)
	s.WantWrites("services", "2 create services 201, 2 delete services 200")
	s.waitReadyNodes("2/2")

	s.ResetCount()
	s.Update("demo", modeServices)
	s.waitRetiring(metav1.ConditionTrue)
	s.WaitServices(ls, append(ofNodes, "demo", sourceName)...)
	s.setPodStatus("b", "10.1.0.3", "") // As long as the names are there they are kept up to date.
	s.wantNames("a=10.1.0.1", "b=10.1.0.3")
	s.wantRetired(ls, s.answering("services"), ofNodes...)
	s.wantNames()
	s.waitReadyNodes("2/2")
	s.WantWrites("services", "2 create services 201, 2 delete services 200")
}

// TestHostnamesChangeOfModeBack changes the mode back before the Services of nodes are retired: they stay, and the
// names are deleted.
func TestHostnamesChangeOfModeBack(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "undecided")
	pass := s.newSliceFence()
	node := s.AddNodes("a")[0]
	ls := s.CreateReady("demo")
	s.run("a", node, "10.1.0.1")
	s.waitReadyNodes("1/1")
	service := s.GetService("demo-" + node)
	s.ResetCount()
	s.Update("demo", framework.WithHostnames)
	s.waitRetiring(metav1.ConditionTrue)
	s.Update("demo", modeServices) // Before anything is retired.
	s.waitRetiring(metav1.ConditionTrue)
	s.wantRetired(ls, s.answering("endpointslices"), service.Name)
	pass()
	s.WantWrites("services", "2 create services 201, 2 delete services 200")
	if now := s.GetService(service.Name); now.UID != service.UID {
		t.Error("the Service that was there was not kept")
	}
}

// TestHostnamesChangeOfModeInterrupted kills the controller in the middle of a change: once while it creates the new
// names, and once while it keeps the old ones. The next one continues, and deletes nothing too early.
func TestHostnamesChangeOfModeInterrupted(t *testing.T) {
	t.Parallel()
	s := newScene(t, publishers.take(t), "killed")
	controller := s.NewController(t)
	nodes := s.AddNodes("a", "b", "c")
	ls := s.CreateReady("demo")
	for i, node := range nodes {
		s.run(fmt.Sprint("pod-", i), node, fmt.Sprintf("10.1.0.%d", i+1))
	}
	s.waitReadyNodes("3/3")
	s.ResetCount()
	s.Update("demo", framework.WithHostnames)
	s.WaitServiceExists("demo")
	s.WaitServiceExists(sourceName)
	controller.Kill()
	s.MustOwn(ls, 5)
	controller = s.NewController(t)
	s.wantNames("a=10.1.0.1", "b=10.1.0.2", "c=10.1.0.3")
	s.waitRetiring(metav1.ConditionTrue)
	controller.Kill()
	s.NewController(t)
	s.wantRetired(ls, s.answering("endpointslices"), "demo", sourceName)
	s.WantWrites("services", "2 create services 201, 3 delete services 200")
	// The API server logs 500 for a request whose client was killed.
	const once, cut = "1 create endpointslices 201", "1 create endpointslices 500, "
	if got := s.Requests().Resource("endpointslices").Writes().String(); strings.TrimPrefix(got, cut) != once {
		t.Errorf("the controller's writes of endpointslices: %s; want %s", got, once)
	}
}

// TestHostnamesLeaderStops tests that of two controllers only the leader publishes, and that the other one continues.
func TestHostnamesLeaderStops(t *testing.T) {
	t.Parallel()
	s := newScene(t, publishers.take(t), "leaders")
	first := s.newCandidate("first")
	s.waitLeading(first)
	second := s.newCandidate("second")
	nodes := s.AddNodes("a", "b")
	s.run("a", nodes[0], "10.1.0.1")
	s.CreateReady("demo", framework.WithHostnames)
	s.wantNames("a=10.1.0.1")
	if writes := s.by(second).Writes(); len(writes) > 0 {
		t.Errorf("the standby wrote: %s", writes)
	}
	s.Must(first.Stop())
	s.run("b", nodes[1], "10.1.0.2")
	s.waitLeading(second)
	s.wantNames("a=10.1.0.1", "b=10.1.0.2")
	s.waitReadyNodes("2/2")
	s.WantWrites("services", "2 create services 201")
	if writes := s.by(second).Resource("endpointslices").Writes(); len(writes) == 0 || len(writes) > 2 {
		t.Errorf("the new leader's writes of EndpointSlices: %s; want one for each change of the pod", writes)
	}
}

// TestHostnamesNotPermitted tests that a controller without the permission that only this mode needs reports that,
// continues with its other work, and publishes the names within ten seconds after it gets the permission, although the
// backoff of the refused write is longer.
func TestHostnamesNotPermitted(t *testing.T) {
	t.Parallel()
	s := newScene(t, publishers.take(t), "permission")
	s.MustControllerKubeconfig(t)
	s.MustKubectl("delete", "clusterrolebinding", "local-service-controller-hostnames")
	t.Cleanup(func() { s.Must(s.Grant(context.Background(), framework.HostnamesPermissions)) })
	s.NewController(t)
	node := s.AddNodes("a")[0]
	s.run("a", node, "10.1.0.1")
	s.Create("demo", framework.WithHostnames)
	s.WaitNotReady("demo", v1alpha1.ReasonHostnamesNotPermitted, "hostnames.yaml")
	s.CreateReady("other")
	s.waitWarning("demo", v1alpha1.ReasonHostnamesNotPermitted, "mode Hostnames needs the permission")
	s.Eventually("the write is refused twice, and waits for 20 s", func(context.Context) error {
		return framework.Equal("refused writes", len(s.Requests().Resource("endpointslices").Verb("create")), 2)
	})
	s.Must(s.Grant(t.Context(), framework.HostnamesPermissions))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s.Must(framework.Poll(ctx, func(ctx context.Context) error {
		ls, err := s.LocalServiceClient().Get(ctx, "demo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.CheckReady(ls)
	}))
	s.wantNames("a=10.1.0.1")
}

// TestHostnamesNeedNoPods tests that a controller that has only LocalServices of this mode requests no pods, and
// nothing at all at rest, and that it watches pods as long as another LocalService needs them.
func TestHostnamesNeedNoPods(t *testing.T) {
	t.Parallel()
	s := newScene(t, publishers.take(t), "nopods")
	controller := s.NewController(t)
	node := s.AddNodes("a")[0]
	s.run("a", node, "10.1.0.1")
	s.CreateReady("demo", framework.WithHostnames)
	s.wantNames("a=10.1.0.1")
	s.newSliceFence()()
	s.waitReadyNodes("1/1")
	s.waitQuiet(3 * time.Second) // A status may come a second later, and the audit log after that.

	rested := s.Audit.Mark()
	began := time.Now()
	s.Eventually("30 s have passed without a request", func(context.Context) error {
		if requests := s.Audit.Since(rested).ByController(); len(requests) > 0 {
			return framework.Hopeless(fmt.Errorf("the controller asked: %s", requests))
		}
		if time.Since(began) < 30*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	s.Must(controller.Stop()) // The audit log has watches once they end.
	ofPods := func() framework.Requests { return s.AllRequests().ByController().Resource("pods") }
	if requests := ofPods(); len(requests) > 0 {
		t.Errorf("the controller asked for pods: %s", requests)
	}
	if labels := s.GetPod("a").Labels; len(labels) != 1 {
		t.Errorf("the pod has labels %v", labels)
	}

	s.NewController(t)
	s.Create("other", func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
	s.WaitLabelled("a", node)
	s.Must(s.LocalServiceClient().Delete(t.Context(), "other", metav1.DeleteOptions{}))
	s.Eventually("the controller watches no pods any more", func(context.Context) error {
		return atLeast(len(ofPods().Verb("watch")), 1)
	})
}

// waitQuiet waits until no controller of the cluster has made a request for some time.
func (s *scene) waitQuiet(d time.Duration) {
	s.T.Helper()
	mark, since := s.Audit.Mark(), time.Now()
	s.Eventually(fmt.Sprintf("%v have passed without a request", d), func(context.Context) error {
		requests := s.Audit.Since(mark).ByController()
		if len(requests) > 0 {
			mark, since = s.Audit.Mark(), time.Now()
		}
		if len(requests) > 0 || time.Since(since) < d {
			return fmt.Errorf("the controller asked: %s", requests)
		}
		return nil
	})
}

// TestHostnamesChangeOfModeToATakenName tests that the Services of nodes stay while the new names cannot be created.
func TestHostnamesChangeOfModeToATakenName(t *testing.T) {
	t.Parallel()
	s := newPublishingScene(t, "taken")
	pass := s.newSliceFence()
	node := s.AddNodes("a")[0]
	ls := s.CreateReady("demo")
	s.run("a", node, "10.1.0.1")
	s.waitReadyNodes("1/1")
	foreign := s.CreateService(framework.NewForeignService("demo", nil))
	s.ResetCount()
	s.Update("demo", framework.WithHostnames)
	s.WaitNotReady("demo", v1alpha1.ReasonNameTaken, "demo")
	s.waitRetiring(metav1.ConditionFalse)
	pass()
	s.WaitServices(ls, "demo-"+node, sourceName)
	s.wantUntouched(foreign)
	s.DeleteService("demo")
	s.wantRetired(ls, s.answering("endpointslices"), "demo", sourceName)
	s.wantNames("a=10.1.0.1")
}

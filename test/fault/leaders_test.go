package fault

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// leaseDuration is short, but long enough that a busy machine does not let the Lease expire.
const leaseDuration = 10 * time.Second

// TestPausedLeader pauses the leader in the middle of its writes until another one has taken over, and changes the
// world. Then it resumes the first one, which does not know yet that it no longer leads.
func TestPausedLeader(t *testing.T) {
	random := random(t)
	for round := range rounds(1, 6) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			w := newWorld(t, shared, 12)
			flags := []string{"-leader-elect", "-leader-election-namespace=" + framework.ControllerNamespace,
				"-leader-election-lease-duration=" + leaseDuration.String()}
			leads := func(c *framework.Controller) {
				_, err := c.WaitLog(t.Context(), "Leading")
				w.Must(err)
			}
			var first *framework.Controller
			var writes atomic.Int64
			pauseAt, paused := int64(random.IntN(20)+1), make(chan struct{})
			proxy := framework.NewProxy(t, shared.MustControllerKubeconfig(t))
			proxy.OnWrite = func() {
				if writes.Add(1) == pauseAt {
					_ = first.Signal(syscall.SIGSTOP)
					close(paused)
				}
			}
			first = shared.NewController(t, append(flags, "-kubeconfig="+proxy.Kubeconfig)...)
			leads(first)
			second := shared.NewController(t, flags...)
			w.create("a")
			w.create("b")
			select {
			case <-paused:
			case <-time.After(framework.DefaultTimeout):
				w.fail("the leader has not made %d writes", pauseAt)
			}
			w.note("the leader is paused at its write %d", pauseAt)
			leads(second)
			w.settle("the other leads")
			w.deleteNode("n3")
			w.addNode("late")
			w.edit("a")
			w.delete("b")
			if random.IntN(2) == 0 {
				w.settle("after changes")
			}
			w.note("the previous leader resumes")
			w.Must(first.Signal(syscall.SIGCONT))
			if code, err := first.Wait(); err != nil || code != 1 || len(first.LogLines("the Lease was lost")) != 1 {
				w.fail("the previous leader ended with exit code %d, %v; want 1, and the reason:\n%s", code, err,
					first.Tail(20))
			}
			w.settle("at the end")
		})
	}
}

// TestSecondAPIServer moves the controller to another API server on the same storage, and back, by a failover each
// time. Both lag.
func TestSecondAPIServer(t *testing.T) {
	random := random(t)
	watched := []string{"localservices", "nodes", "services"}
	clusters := []*framework.Cluster{shared, shared.NewSecondAPIServer(t, "")}
	w := newWorld(t, shared, 3)
	w.marks[clusters[1].Audit] = clusters[1].Audit.Mark()
	w.create("a")
	for i := range rounds(2, 6) {
		proxy := framework.NewProxy(t, clusters[i%2].MustControllerKubeconfig(t))
		c := shared.NewController(t, "-kubeconfig="+proxy.Kubeconfig)
		w.settle(fmt.Sprintf("begin of step %d", i))
		proxy.Freeze(watched...)
		w.addNode(fmt.Sprintf("m%d", i))
		w.deleteNode(fmt.Sprintf("n%d", i))
		w.create("b")
		c.Kill()
		w.note("killed, and restarted at another API server, which lags")
		proxy = framework.NewProxy(t, clusters[(i+1)%2].MustControllerKubeconfig(t))
		c = shared.NewController(t, "-kubeconfig="+proxy.Kubeconfig)
		proxy.Freeze(watched[random.IntN(len(watched))])
		w.addNode(fmt.Sprintf("n%d", i)) // again
		w.addNode(fmt.Sprintf("n%d", i+3))
		w.edit("a")
		w.delete("b")
		time.Sleep(time.Second)
		proxy.Thaw()
		w.settle(fmt.Sprintf("end of step %d", i))
		c.Kill()
	}
}

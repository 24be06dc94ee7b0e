package fault

import (
	"fmt"
	"os"
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
	random, rounds := random(t), 1
	if os.Getenv("FAULT") == "whole" {
		rounds = 6
	}
	for round := range rounds {
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

package fault

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// scenario is a piece of work for a controller.
type scenario struct {
	name           string
	prepare, begin func(*world)
}

func headless(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = corev1.ClusterIPNone }

func onPort(port int32) framework.Change {
	return func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = port }
}

var scenarios = []scenario{
	{"fan-out", func(*world) {}, func(w *world) { w.createLocalService("demo") }},
	{"a node joins", func(w *world) { w.createLocalService("demo") }, func(w *world) { w.addNode("new") }},
	{"a node leaves", func(w *world) { w.createLocalService("demo") },
		func(w *world) { w.deleteNode(w.NodeName("n0")) }},
	{"another port", func(w *world) { w.createLocalService("demo") }, func(w *world) {
		w.update("another port", "demo", onPort(81))
	}},
	{"addresses", func(w *world) { w.createLocalService("demo") }, func(w *world) {
		w.update("addresses", "demo", framework.WithClusterIP)
	}},
	{"headless", func(w *world) { w.createLocalService("demo", framework.WithClusterIP) }, func(w *world) {
		w.update("headless", "demo", headless)
	}},
	{"a name is freed", func(w *world) {
		w.take("demo-" + w.NodeName("n0"))
		w.createLocalService("demo")
	}, func(w *world) { w.give("demo-" + w.NodeName("n0")) }},
	{"deletion", func(w *world) { w.createLocalService("demo") }, func(w *world) { w.deleteLocalService("demo") }},
	{"deleted and recreated", func(w *world) { w.createLocalService("demo") }, func(w *world) {
		w.deleteLocalService("demo")
		w.createLocalService("demo", onPort(82))
	}},
}

// TestCrashAtEveryWrite kills the controller before and after the API server accepts each of its writes, and restarts
// it. Unless the campaigns are run whole, it does so at one write of each scenario.
func TestCrashAtEveryWrite(t *testing.T) {
	random, crashes := random(t), []fault{crashFirst, crashAfter}
	for _, s := range scenarios {
		if !whole() {
			crashAtWrite(t, s, crashes[random.IntN(2)], random.IntN(8)+1)
			continue
		}
		for _, what := range crashes {
			for k := 1; crashAtWrite(t, s, what, k); k++ {
			}
		}
	}
}

// crashAtWrite kills the controller at write number k of a scenario. It returns false if there are fewer writes.
func crashAtWrite(t *testing.T, s scenario, what fault, k int) (killed bool) {
	t.Run(fmt.Sprintf("%s, write %d, %s", s.name, k, what), func(t *testing.T) {
		w := newWorld(t, shared, 3)
		p := newProxy(t, shared)
		c := startController(t, shared, "-kubeconfig="+p.kubeconfig)
		s.prepare(w)
		w.settle("before")
		var writes atomic.Int64
		crashed := make(chan struct{})
		p.set(func(r *http.Request) fault {
			if isWrite(r) && writes.Add(1) == int64(k) {
				return what
			}
			return none
		}, func() {
			c.Kill()
			close(crashed)
		})
		s.begin(w)
		settled := make(chan struct{})
		go func() {
			defer close(settled)
			for last := int64(-1); last != writes.Load() || w.check(t.Context()) != nil; time.Sleep(time.Second) {
				last = writes.Load()
				if !c.Running() {
					<-crashed
					return
				}
			}
		}()
		select {
		case <-crashed:
			killed = true
			<-settled
			p.set(nil, nil)
			w.note("killed at write %d, and restarted", k)
			c.start()
		case <-settled:
		case <-time.After(framework.DefaultTimeout):
			w.fail("before write %d of %s: %v", k, s.name, w.check(t.Context()))
		}
		w.settle("after")
		w.rest(time.Second)
	})
	return killed && !t.Failed()
}

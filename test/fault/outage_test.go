package fault

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// recovery is how long everything may take once all watches are back.
const recovery = 10 * time.Second

// TestOutage cuts the controller off the API server while nodes join before, meanwhile and after. Each watch comes back
// after a backoff of its own: that of LocalServices comes last here, after many events of Nodes. That must not delay
// anything any further.
func TestOutage(t *testing.T) {
	rounds, outage := 1, 5*time.Second
	if whole() {
		rounds, outage = 3, 20*time.Second
	}
	w := newWorld(t, shared, 5)
	proxy := newProxy(t, shared)
	startController(t, shared, "-kubeconfig="+proxy.kubeconfig)
	for i := range 5 {
		w.createLocalService(fmt.Sprint("ls", i))
	}
	w.settle("before")
	joined := 0
	join := func(d time.Duration) {
		const pause = 250 * time.Millisecond
		for range int(d / pause) {
			joined++
			w.addNode(fmt.Sprintf("joined-%d", joined))
			time.Sleep(pause)
		}
	}
	for range rounds {
		join(2 * time.Second)
		w.note("the outage begins")
		proxy.freeze(watched...)
		proxy.set(func(*http.Request) fault { return reset }, nil)
		join(outage)
		w.note("the outage ends, and the watches of Nodes and Services are back")
		proxy.set(nil, nil)
		proxy.breakWatches(false, "nodes", "services")
		join(10 * time.Second)
		w.note("the watch of LocalServices is back")
		proxy.thaw()
		began := time.Now()
		w.disordered() // An answer may have been lost.
		w.settle("after the outage")
		if took := time.Since(began); took > recovery {
			w.fail("settled after %s", took)
		}
	}
	w.rest(time.Second)
}

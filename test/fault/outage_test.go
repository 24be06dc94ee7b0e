package fault

import (
	"fmt"
	"testing"
	"time"
)

// recovery is how long everything may take after an outage: client-go connects each watch again with a backoff of its
// own, which reaches 30 seconds, and then a few seconds for the work.
const recovery = 40 * time.Second

// TestOutage cuts the controller off the API server while nodes join before, meanwhile and after: watches come back one
// after the other, and that of LocalServices often later than that of Nodes, of which there are many events by then.
// Nothing may be late because of the order in which they come.
func TestOutage(t *testing.T) {
	rounds, outage := 1, 8*time.Second
	if whole() {
		rounds, outage = 3, 20*time.Second
	}
	w := newWorld(t, shared, 5)
	proxy := shared.NewProxy(t, shared.MustControllerKubeconfig(t))
	startController(t, shared, "-kubeconfig="+proxy.Kubeconfig)
	for i := range 5 {
		w.createLocalService(fmt.Sprint("ls", i))
	}
	w.settle("before")
	join := func(phase string, d time.Duration) {
		for i := range int(d / (250 * time.Millisecond)) {
			w.addNode(fmt.Sprintf("%s%d", phase, i))
			time.Sleep(250 * time.Millisecond)
		}
	}
	for round := range rounds {
		join(fmt.Sprintf("before%d-", round), 2*time.Second)
		w.note("the outage begins")
		proxy.Block()
		join(fmt.Sprintf("meanwhile%d-", round), outage)
		w.note("the outage ends")
		proxy.Unblock()
		began := time.Now()
		join(fmt.Sprintf("after%d-", round), 5*time.Second)
		late := time.AfterFunc(time.Until(began.Add(recovery)), func() { w.T.Errorf("not settled after %s", recovery) })
		w.disordered() // An answer may have been lost.
		w.settle("after the outage")
		late.Stop()
		t.Logf("settled %s after an outage of %s", time.Since(began).Round(time.Second), outage)
	}
	w.rest(time.Second)
}

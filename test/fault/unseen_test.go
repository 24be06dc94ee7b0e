package fault

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestDeletedUnseen: a Service that somebody deletes, when the watch has told neither that it was made nor that it has
// gone, and then has to list anew, is made again by the time that what is pending is looked at.
func TestDeletedUnseen(t *testing.T) {
	w, proxy := newWorld(t, shared, 1), newProxy(t, shared)
	startController(t, shared, "-kubeconfig="+proxy.kubeconfig)
	w.createLocalService("a")
	w.settle("before")
	proxy.freeze("services")
	w.addNode("n1")
	name := "a-" + w.NodeName("n1")
	isThere := func(ctx context.Context) error {
		_, err := w.ServiceClient().Get(ctx, name, metav1.GetOptions{})
		return err
	}
	w.Eventually("a Service for the node", isThere)
	w.deleteService(name)
	proxy.breakWatches(true, "services")
	// It is looked at after 5 s. What is expected of the watch is forgotten after a minute, whatever it tells.
	ctx, cancel := context.WithTimeout(w.Ctx(), 40*time.Second)
	defer cancel()
	if err := framework.Poll(ctx, isThere); err != nil {
		t.Errorf("after 40 s: %v", err)
	}
	w.settle("after")
}

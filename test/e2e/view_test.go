package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/browser"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestView kills the pod of a node while a browser shows the page.
func TestView(t *testing.T) {
	s := newScene(t)
	ls := s.localService("demo")
	s.deploy(3)
	byNode := s.waitForPods(1, nodes...)
	s.wantServices(ls, nodes...)
	page := browser.View(t, cluster, 1000, 700, "--namespace", s.Namespace)
	cell := func(node string) string { return browser.Cell(s.Namespace+"/"+ls.Name, node) }
	for _, node := range nodes {
		browser.Eventually(page, cell(node), "Healthy 1/1")
	}

	node := nodes[1]
	page.Do(chromedp.Evaluate(fmt.Sprintf(`new MutationObserver(() => {
		if (!window.changed && !%s.startsWith("Healthy")) window.changed = Date.now();
	}).observe(canvas, { subtree: true, childList: true })`, cell(node)), nil))
	// Without the quota, a successor may be ready before the page shows that the pod is gone.
	s.MustKubectl("create", "quota", "no-successor", "--hard=pods=2")
	died := s.whenUnready(naming.ServiceName(ls.Name, node))
	s.MustKubectl("delete", "pod", byNode[node][0], "--force", "--grace-period=0")
	told := <-died
	browser.Eventually(page, "!!window.changed", true)
	t.Logf("the page shows that the pod is gone %v after the API server has reported it",
		time.UnixMilli(browser.Eval[int64](page, "window.changed")).Sub(told))
	s.MustKubectl("delete", "quota", "no-successor")
	for _, node := range nodes { // Its successor is there.
		browser.Eventually(page, cell(node), "Healthy 1/1")
	}
}

// whenUnready sends the time when the API server first reports that no endpoint of a Service is ready.
func (s *scene) whenUnready(service string) <-chan time.Time {
	s.T.Helper()
	of := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service}
	slicesClient := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	list, err := slicesClient.List(s.Ctx(), of)
	s.Must(err)
	ctx, cancel := context.WithTimeout(s.Ctx(), framework.DefaultTimeout)
	s.T.Cleanup(cancel)
	of.ResourceVersion = list.ResourceVersion
	watch, err := slicesClient.Watch(ctx, of)
	s.Must(err)
	told := make(chan time.Time, 1)
	go func() {
		defer watch.Stop()
		for event := range watch.ResultChan() {
			slice, isSlice := event.Object.(*discoveryv1.EndpointSlice)
			if !isSlice || !slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
				return ptr.Deref(e.Conditions.Ready, true)
			}) {
				break
			}
		}
		told <- time.Now()
	}()
	return told
}

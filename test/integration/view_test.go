package integration

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/browser"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const zone = "topology.kubernetes.io/zone"

// newViewScene returns a scene with a LocalService in every possible state, in a cluster of 14 nodes in three zones.
func newViewScene(t *testing.T, cluster *framework.Cluster) (s *scene, nodes []string) {
	s = newScene(t, cluster, "view")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}
	_, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	s.Must(err)
	s.Namespace = namespace.Name
	s.WaitServiceAccount()
	for i := range 14 {
		nodes = append(nodes, fmt.Sprintf("worker-%02d", i+1))
		labels := map[string]string{zone: "eu-west-1" + string("abc"[i%3]), "disk": "ssd", "gpu": "yes"}
		if i >= 9 {
			labels["disk"] = "hdd"
		}
		if i < 8 {
			labels["gpu"] = "no"
		}
		s.CreateNode(nodes[i], labels)
	}
	s.CreateService(framework.NewForeignService("gpu-metrics-worker-11", nil))
	of := func(selector map[string]string, mode v1alpha1.Mode, groupBy string) change {
		return func(ls *v1alpha1.LocalService) {
			ls.Spec.NodeSelector, ls.Spec.Mode, ls.Spec.GroupBy = selector, mode, groupBy
		}
	}
	s.Create("dns-cache", of(nil, "", ""))
	s.Create("gpu-metrics", of(map[string]string{"gpu": "yes"}, "", ""))
	s.Create("image-cache", of(map[string]string{"disk": "ssd"}, "", ""))
	s.Create("log-agent", of(nil, "", ""))
	s.Create("storage", of(nil, v1alpha1.ModeHostnames, ""))
	s.Create("zone-cache", of(nil, v1alpha1.ModeHostnames, zone))
	pods := map[string][]int{"dns-cache": nil, "log-agent": nil, "gpu-metrics": {9, 10, 11, 12, 13, 14},
		"image-cache": {1, 2, 3, 4, 5, 6, 7, 8, 9}, "storage": {1, 3, 5, 7, 9, 11}, "zone-cache": {1, 2, 3, 4, 5, 6}}
	waits := map[string]string{"log-agent-4": "CrashLoopBackOff", "image-cache-7": "ImagePullBackOff",
		"zone-cache-2": "ContainerCreating", "dns-cache-12-b": "CreateContainerConfigError"}
	addresses := 0
	add := func(name, node, app string) {
		s.CreatePod(name, node, map[string]string{"app": app})
		addresses++
		s.setPodStatus(name, fmt.Sprint("10.1.0.", addresses), waits[name])
	}
	for app, on := range pods {
		if on == nil {
			on = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
		}
		for _, i := range on {
			add(fmt.Sprint(app, "-", i), nodes[i-1], app)
		}
	}
	add("dns-cache-12-b", nodes[11], "dns-cache")
	// Events of the kubelet about the crashing pod, and of kube-controller-manager about Services; and a cordoned node.
	for _, e := range []struct{ kind, name, reason, message string }{
		{"Pod", "log-agent-4", "BackOff", "Back-off restarting failed container app"},
		{"Service", "log-agent-worker-04", "FailedToUpdateEndpointSlices", "exceeded quota: objects"},
		{"Service", "storage", "OfTheNames", "of the Service with the names"},
		{"Service", plan.ServiceName("storage", plan.Source, ""), "OfThePods", "of the Service for the pods"},
	} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: e.name + ".1", Namespace: s.Namespace},
			InvolvedObject: corev1.ObjectReference{Kind: e.kind, Name: e.name, Namespace: s.Namespace},
			Reason:         e.reason, Message: e.message, Type: corev1.EventTypeWarning, Count: 12,
			LastTimestamp: metav1.Now()}
		_, err = s.Kube.CoreV1().Events(s.Namespace).Create(t.Context(), event, metav1.CreateOptions{})
		s.Must(err)
	}
	s.PatchNode(nodes[1], `{"spec":{"unschedulable":true}}`)
	return s, nodes
}

// TestView checks a page with every state, moves the pointer over it, and deletes a pod.
func TestView(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, publisher())
	cluster.NewController(t)
	s, nodes := newViewScene(t, cluster)
	page := browser.View(t, cluster, 1280, 800, "--namespace", s.Namespace)
	cell := func(column, row string) string { return browser.Cell(s.Namespace+"/"+column, row) }

	for _, c := range []struct{ column, row, want string }{
		{"dns-cache", nodes[0], "Healthy 1/1"},
		{"dns-cache", nodes[11], "Degraded 1/2"},
		{"gpu-metrics", nodes[0], ""},
		{"gpu-metrics", nodes[10], "Down 0/0"},
		{"image-cache", nodes[6], "Down 0/1"},
		{"log-agent", nodes[3], "Down 0/1"},
		{"storage", nodes[0], "Healthy 1/1"},
		{"storage", nodes[1], "Empty "},
		{"zone-cache", nodes[0], ""},
		{"zone-cache", zone + "=eu-west-1a", "Healthy 2/2"},
		{"zone-cache", zone + "=eu-west-1b", "Degraded 1/2"},
	} {
		browser.Eventually(page, cell(c.column, c.row), c.want)
	}
	browser.Eventually(page, `document.querySelector("#live").textContent`, "Live")
	browser.Eventually(page, `document.querySelector("#count").textContent`, "14 nodes · 3 groups · 6 LocalServices")
	// The keys begin at the first line: the active cell may be in any that was there when the page was loaded. Below the
	// line of the zones come the nodes with problems, of which worker-04 is the first.
	first := chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(input.ModifierCtrl))
	move := chromedp.KeyEvent(kb.ArrowDown + kb.ArrowRight + kb.ArrowRight + kb.ArrowRight)
	page.Do(chromedp.Focus("#grid"), first, move)
	browser.Eventually(page, `document.querySelector("#tip").innerText`,
		"log-agent, worker-04\nCrashLoopBackOff (log-agent-4: 7 restarts); see kubectl logs -n platform log-agent-4")
	page.Do(chromedp.KeyEvent(kb.Enter))
	browser.Eventually(page, `[...document.querySelectorAll("#details code, #details li")].map((e) => e.innerText)
		.filter((text) => /^(PodsNotReady|kubectl logs.*)$/.test(text)).join("\n")`,
		"kubectl logs -n platform log-agent-4\nPodsNotReady")
	browser.Eventually(page, `/7 restarts\), age \d+[sm]/.test(details.innerText)`, true)
	browser.Eventually(page, `/BackOff\n\d+[sm] ago, 12 times, Pod log-agent-4\n/.test(details.innerText)`, true)
	browser.Eventually(page, `/FailedToUpdateEndpointSlices\n\d+[sm] ago, 12 times, Service log-agent-worker-04\n`+
		`exceeded quota: objects/.test(details.innerText)`, true)
	browser.Eventually(page, `describe(columns.get("platform/storage"), "worker-02").join()`,
		"storage, worker-02,no matching pod here; the node is cordoned (app=storage),Empty")
	// The column ANSWERING of kubectl get has the same numbers as the heads.
	for column, want := range map[string]string{"dns-cache": "14/14", "gpu-metrics": "5/6", "image-cache": "8/9",
		"log-agent": "13/14", "storage": "6/14", "zone-cache": "3/3"} {
		s.WaitLocalService(column, "answering "+want, func(ls *v1alpha1.LocalService) error {
			return framework.Equal("status.ready", ls.Status.Ready, want)
		})
		browser.Eventually(page, fmt.Sprintf(`answering(columns.get(%q))`, s.Namespace+"/"+column), want)
	}
	page.Picture("view-light", "light")
	page.Do(chromedp.Evaluate(fmt.Sprintf(`showDetails({ column: %q, row: %q })`, s.Namespace+"/storage", nodes[0]), nil))
	browser.Eventually(page, `/^OfThePods$/m.test(details.innerText) && /^OfTheNames$/m.test(details.innerText)`, true)
	// The page follows.
	s.Must(s.PodClient().Delete(t.Context(), "image-cache-1", metav1.DeleteOptions{}))
	browser.Eventually(page, cell("image-cache", nodes[0]), "Empty ")
}

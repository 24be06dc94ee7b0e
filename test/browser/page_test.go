package browser_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/view"
	"github.com/localservice-dev/local-service-controller/test/browser"
)

// hostile is a name that an attacker may choose.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"'&amp;`

// columns returns LocalServices with a number of nodes. change may change some of them.
func columns(names, nodes int, change func(column, node int, n *diagnose.Node)) map[string]*view.Column {
	all := map[string]*view.Column{}
	for c := range names {
		list := &diagnose.NodeList{Namespace: "default", LocalService: fmt.Sprintf("app-%02d", c)}
		for i := range nodes {
			n := &diagnose.Node{Node: fmt.Sprintf("n%04d", i), Endpoints: diagnose.Endpoints{Ready: 1, Total: 1},
				Finding: diagnose.Finding{State: diagnose.Healthy}}
			change(c, i, n)
			list.Items = append(list.Items, n)
			list.Summary.Nodes++
			list.Summary.Answering += min(n.Endpoints.Ready, 1)
		}
		all["default/"+list.LocalService] = view.NewColumn(list)
	}
	return all
}

// found is a finding that is about something.
func found(state diagnose.State, reason diagnose.Reason, cause, about string) diagnose.Finding {
	message := cause
	if about != "" {
		message += " (" + about + ")"
	}
	return diagnose.Finding{State: state, Reason: reason, Cause: cause, Message: message}
}

// advise sets what to do about a finding.
func advise(n *diagnose.Node, act string) {
	n.Act, n.Message = act, n.Message+"; "+act
}

func notReady(n *diagnose.Node) {
	n.Endpoints.Ready = 0
	n.Finding = found(diagnose.Down, diagnose.PodsNotReady, "exit code 1", "a: 5 restarts")
}

// serve serves a page about namespace default until the test ends.
func serve(t *testing.T, matrix *view.Matrix) *view.Server {
	t.Helper()
	return serveNamespace(t, "default", matrix)
}

// serveNamespace is serve for another namespace, "" for all.
func serveNamespace(t *testing.T, namespace string, matrix *view.Matrix) *view.Server {
	t.Helper()
	scope := view.Scope{Context: "test", Namespace: namespace, Flags: []string{"--context=test"}}
	s, err := view.NewServer(scope, func(_ context.Context, _, row string) *view.Details {
		return &view.Details{Node: &diagnose.Node{Node: row, DNSName: hostile,
			Finding:   found(diagnose.Down, hostile, hostile, ""),
			Addresses: []string{hostile}, Pods: []diagnose.Pod{
				{Name: "pod-1", Reason: hostile, Container: "app", Log: diagnose.LogPrevious}}},
			Events: []corev1.Event{
				{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: hostile}, Reason: hostile, Message: hostile,
					LastTimestamp: metav1.Unix(1, 0)},
				{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "pod-1"}, Reason: "Newer", Type: "Warning",
					Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(time.Unix(2, 0))}}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Publish(matrix)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

const (
	count   = `document.querySelector("#count").textContent`
	current = `((e) => !e ? "" : e.column + " " + e.row)` +
		`(document.getElementById(grid.getAttribute("aria-activedescendant")))`
	cells = `document.querySelectorAll(".cell").length`
	tip   = `document.querySelector("#tip:not([hidden])")?.innerText ?? ""`
	about = `document.querySelector("#details:not([hidden])")?.innerText ?? ""`

	heading = `document.querySelector("#details h2")?.innerText ?? ""`
	message = `[...document.querySelectorAll("#details .message")].map((e) => e.innerText).join("|")`
)

// loaded is a view of everything, and withProblem one that does not receive changes.
func loaded(columns map[string]*view.Column) *view.Matrix {
	return &view.Matrix{Status: view.Status{Loaded: true}, Columns: columns}
}

func withProblem(problem string, columns map[string]*view.Column) *view.Matrix {
	return &view.Matrix{Status: view.Status{Loaded: true, Problems: []string{problem}}, Columns: columns}
}

// TestManyNodes: of 100,000 cells only those on the screen are drawn, at every scroll position, and all can be found.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	const names, nodes = 20, 5000
	matrix := loaded(columns(names, nodes, func(c, i int, n *diagnose.Node) {
		if c == 7 && i%1000 == 999 {
			notReady(n)
		}
	}))
	server := serve(t, matrix)
	page := browser.Open(t, server.URL(), 1280, 800)
	browser.Eventually(page, count, "5,000 nodes · 20 LocalServices")
	browser.Eventually(page, `[map.hidden, sections.flatMap((s) => s.rows).length].join()`, "false,5000")
	page.Do(chromedp.Click(`#views button[value=table]`))
	browser.Eventually(page, `[map.hidden, grid.hidden].join()`, "true,false")
	few := func(when string) {
		t.Helper()
		if n := browser.Eval[int](page, cells); n == 0 || n > 1000 {
			t.Errorf("%s, %d cells are drawn", when, n)
		}
	}
	few("at the top")
	page.Do(chromedp.Evaluate(`grid.scrollTop = grid.scrollHeight / 2`, nil))
	browser.Eventually(page, browser.Cell("default/app-00", "n2500"), "Healthy 1/1")
	few("in the middle")
	page.Do(chromedp.Evaluate(`grid.scrollTop = grid.scrollHeight`, nil))
	browser.Eventually(page, browser.Cell("default/app-07", "n4998"), "Healthy 1/1")
	browser.Eventually(page, browser.Cell("default/app-00", "n0000"), "")
	few("at the end")

	// One cell on the screen changes, and one that is not. Nothing is sent about the others.
	page.Do(chromedp.Evaluate(`events.addEventListener("message", (e) => window.last = e.data.length)`, nil))
	changed := maps.Clone(matrix.Columns)
	maps.Copy(changed, columns(8, nodes, func(c, i int, n *diagnose.Node) {
		if c == 7 && i%1000 == 998 {
			notReady(n)
		}
	}))
	server.Publish(loaded(changed))
	page.Do(chromedp.Evaluate(`grid.scrollTop = 0`, nil))
	browser.Eventually(page, browser.Cell("default/app-07", "n4998"), "Down 0/1")
	browser.Eventually(page, browser.Cell("default/app-07", "n4999"), "")
	if n := browser.Eval[int](page, "window.last"); n > 2000 {
		t.Errorf("%d bytes for 10 cells", n)
	}

	page.Do(chromedp.Click(`#states button[value=Down]`))
	browser.Eventually(page, count, "5 of 5,000 nodes · 1 of 20 LocalServices")
	browser.Eventually(page, browser.Cell("default/app-07", "n0998"), "Down 0/1")
	few("filtered by state")
	page.Do(chromedp.Click(`#states button[value=Down]`), chromedp.SendKeys("#by-node", "99"))
	browser.Eventually(page, count, "95 of 5,000 nodes · 20 LocalServices")
	few("filtered by node")
	page.Do(chromedp.SendKeys("#by-node", "8"))
	browser.Eventually(page, count, "5 of 5,000 nodes · 20 LocalServices")
}

// TestKeyboard: everything can be done without a mouse, and read by a screen reader.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, with(serve(t, loaded(columns(40, 300, func(c, i int, n *diagnose.Node) {
		if c == 1 && i == 1 {
			notReady(n)
		}
	}))).URL(), "view=table"), 1280, 800)
	browser.Eventually(page, count, "300 nodes · 40 LocalServices")
	page.Do(chromedp.Focus("#grid"))
	for _, c := range []struct{ keys, want string }{
		{kb.ArrowDown + kb.ArrowUp + kb.ArrowRight, "default/app-01 n0001"},
		{kb.End, "default/app-39 n0001"},
		{kb.Home, "default/app-00 n0001"},
		{kb.ArrowUp + kb.ArrowUp + kb.ArrowLeft, "default/app-00 n0001"},
	} {
		page.Do(chromedp.KeyEvent(c.keys))
		browser.Eventually(page, current, c.want)
	}
	page.Do(chromedp.Evaluate(`scrolled = 0; grid.addEventListener("scroll", () => scrolled++)`, nil),
		chromedp.KeyEvent(kb.End, chromedp.KeyModifiers(2)), // Ctrl
		chromedp.Poll(`scrolled > 0`, nil))
	browser.Eventually(page, current, "default/app-39 n0299")
	if got := browser.Eval[string](page, tip); !strings.Contains(got, "app-39, n0299") {
		t.Errorf("when the table has scrolled to a cell, its tip is %q", got)
	}
	page.Do(chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(2)), chromedp.KeyEvent(kb.PageDown))
	if got := browser.Eval[string](page, current); got <= "default/app-00 n0010" || got >= "default/app-00 n0040" {
		t.Errorf("Page Down goes to %s", got)
	}
	page.Do(chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(2)), chromedp.KeyEvent(kb.ArrowRight))
	browser.Eventually(page, tip, "app-01, n0001\nexit code 1 (a: 5 restarts)")
	browser.Eventually(page, `document.getElementById(grid.getAttribute("aria-activedescendant")).ariaLabel`,
		"app-01, n0001: exit code 1 (a: 5 restarts): Down")
	page.Do(chromedp.KeyEvent(kb.Enter))
	browser.Eventually(page, heading, "app-01 on n0001")
	page.Do(chromedp.KeyEvent(kb.Escape))
	browser.Eventually(page, about, "")
	page.Do(chromedp.KeyEvent("/"))
	browser.Eventually(page, "document.activeElement.id", "by-name")
	page.Do(chromedp.KeyEvent("app-03"))
	browser.Eventually(page, count, "300 nodes · 1 of 40 LocalServices")
	page.Do(chromedp.KeyEvent(kb.Escape))
	browser.Eventually(page, "document.activeElement.id", "grid")
	browser.Eventually(page, `[grid.ariaRowCount, grid.ariaColCount].join()`, "301,2")
}

// TestHostileText: what the cluster says is text, wherever it is shown.
func TestHostileText(t *testing.T) {
	t.Parallel()
	list := &diagnose.NodeList{Namespace: "default", LocalService: hostile, Message: hostile, GroupBy: hostile}
	list.Items = []*diagnose.Node{
		{Node: hostile, Hostname: "x", Finding: found(diagnose.Down, diagnose.PodsNotReady, hostile, "")},
		{Node: "__proto__", Finding: found(diagnose.Down, diagnose.NodeWithoutName, hostile, "")}}
	matrix := withProblem(hostile, map[string]*view.Column{
		"default/" + hostile: view.NewColumn(list)})
	page := browser.Open(t, serve(t, matrix).URL(), 1280, 800)
	browser.Eventually(page, count, "1 node · 1 group · 1 LocalService")
	page.Do(chromedp.Focus("#grid"), chromedp.KeyEvent(kb.ArrowDown))
	tipText := browser.Eval[string](page, tip)
	page.Do(chromedp.KeyEvent(kb.Enter))
	browser.Eventually(page, `document.querySelectorAll("#details li").length > 4`, true)
	for name, text := range map[string]string{
		"problems": browser.Eval[string](page, `document.querySelector("#problems").innerText`),
		"header":   browser.Eval[string](page, `document.querySelector(".columnheader b").textContent`),
		"rows": browser.Eval[string](page,
			`[...document.querySelectorAll(".rowheader")].map((e) => e.textContent).join()`),
		"causes":  browser.Eval[string](page, `document.querySelector("#causes").innerText`),
		"details": browser.Eval[string](page, about),
		"tip":     tipText,
	} {
		if !strings.Contains(text, "<img src=x") {
			t.Errorf("%s: %s", name, text)
		}
	}
	newer, older, _ := strings.Cut(browser.Eval[string](page, about), "7 times, Pod pod-1")
	if !strings.Contains(newer, "Newer") || !strings.Contains(older, "ago, Pod <img src=x") {
		t.Errorf("the events are not the newest first: %s and then %s", newer, older)
	}
	if n := browser.Eval[int](page, `document.querySelectorAll("img, #canvas script, #details script").length`); n > 0 {
		t.Errorf("%d elements were made of text", n)
	}
	if title := browser.Eval[string](page, "document.title"); title != "LocalServices" {
		t.Errorf("the title is %s", title)
	}
	var refused string
	page.Do(chromedp.Evaluate(`try { tip.innerHTML = "<b>"; "" } catch (e) { e.name }`, &refused))
	if refused != "TypeError" {
		t.Errorf("text can become elements: %q", refused)
	}
}

// TestConnection: a page without its token says so, and one whose plugin has ended, too.
func TestConnection(t *testing.T) {
	t.Parallel()
	const problems = `document.querySelector("#problems").innerText.slice(0, 16)`
	const live = `document.querySelector("#live").textContent`
	server := serve(t, &view.Matrix{Columns: columns(1, 1, func(int, int, *diagnose.Node) {})})
	address, _, _ := strings.Cut(server.URL(), "#")
	stranger := browser.Open(t, address+"#wrong", 800, 600)
	browser.Eventually(stranger, live, "Not connected")
	browser.Eventually(stranger, problems, "Open the address")
	if n := browser.Eval[int](stranger, cells); n > 0 {
		t.Errorf("a stranger sees %d cells", n)
	}
	page := browser.Open(t, server.URL(), 800, 600)
	browser.Eventually(page, live, "Connecting")
	server.Publish(loaded(columns(1, 1, func(int, int, *diagnose.Node) {})))
	browser.Eventually(page, live, "Live")
	empty := withProblem("cannot watch pods", nil)
	empty.Nothing = "There is no LocalService in namespace shop."
	server.Publish(empty)
	browser.Eventually(page, problems, "cannot watch pod")
	browser.Eventually(page, `document.querySelector("#nothing").innerText`, empty.Nothing)
	stopped := loaded(nil)
	stopped.Controller = "The controller does not seem to run."
	server.Publish(stopped)
	browser.Eventually(page, `document.querySelector("#problems").innerText`, "The controller does not seem to run.")
	browser.Eventually(page, live, "Live")
}

package browser_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/view"
	"github.com/localservice-dev/local-service-controller/test/browser"
)

// longName is as long as the name of a LocalService can be.
const longName = "very-long-name-of-a-local-service-of-a-team-far-away"

// troubled is a cluster with a number of nodes in three zones. Pods crash, and one LocalService has names for zones.
func troubled(nodes int) *view.Matrix {
	m := loaded(columns(4, nodes, func(c, i int, n *diagnose.Node) {
		switch {
		case c == 1 && i%10 == 9, c == 2 && i == 4:
			notReady(n)
		case c == 2 && i == 7:
			n.Endpoints.Total = 2
			n.Finding = found(diagnose.Degraded, diagnose.PodsNotReady, "cannot pull image b:2", "b")
			advise(n, "correct it")
		case c == 3:
			n.Endpoints = diagnose.Endpoints{}
			n.Finding = found(diagnose.Empty, diagnose.NoPods, "no matching pod here", "app=x")
		}
	}))
	zones := &diagnose.NodeList{Namespace: "default", LocalService: longName, GroupBy: "topology.kubernetes.io/zone",
		Summary: diagnose.Summary{Nodes: 3, Answering: 3, Status: "NameTaken", Problem: "the name is taken"}}
	for _, zone := range []string{"eu-west-1a", "eu-west-1b", "eu-west-1c"} {
		zones.Items = append(zones.Items, &diagnose.Node{Node: zone, Hostname: zone,
			Endpoints: diagnose.Endpoints{Ready: 2, Total: 2}, Finding: diagnose.Finding{State: diagnose.Healthy}})
	}
	m.Columns["default/"+longName] = view.NewColumn(zones)
	for i, name := range []string{"dns-cache", "log-agent", "image-cache", "gpu-metrics"} {
		column := m.Columns[fmt.Sprintf("default/app-%02d", i)]
		delete(m.Columns, "default/"+column.Name)
		column.Name = name
		m.Columns["default/"+name] = column
	}
	m.Places = map[string]*view.Place{}
	for i := range nodes {
		m.Places[fmt.Sprintf("n%04d", i)] = &view.Place{Zone: "eu-west-1" + string("abc"[i%3]), Pool: "general"}
	}
	return m
}

const (
	causes = `[...document.querySelectorAll("#causes button")].map((e) =>
		[...e.querySelectorAll("b, span span")].map((c) => c.textContent).join("|")).join("\n")`
	// disagreeing are the states of which the counter and the lines do not say the same.
	disagreeing = `["Degraded", "Down", "Empty"].filter((state) =>
		[...document.querySelectorAll("#causes button[data-state=" + state + "] b")]
			.reduce((sum, e) => sum + (/ names?$/.test(e.innerText) ? parseInt(e.innerText.replace(",", "")) : NaN), 0) !==
		parseInt(document.querySelector("#states [value=" + state + "] b").innerText.replace(",", ""))).join()`
	rowNames = `[...document.querySelectorAll(".row")].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)` +
		`.slice(0, 7).map((e) => e.firstChild.textContent).join()`
	search = `location.search`
)

// with adds a query to the address of a page.
func with(url, query string) string { return strings.Replace(url, "#", "?"+query+"#", 1) }

// TestProblemsFirst: problems are grouped by cause, rows with problems come first, groups before nodes, and a cause
// leads to its cells.
func TestProblemsFirst(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, serve(t, troubled(100)).URL(), 1280, 800)
	browser.Eventually(page, count, "100 nodes · 3 groups · 5 LocalServices")
	browser.Eventually(page, causes, "1 LocalService|NameTaken|the name is taken|"+longName+"\n"+
		"10 names|exit code 1|(a: 5 restarts)|log-agent (10)|n0009, n0019, n0029 and 7 more\n"+
		"1 name|exit code 1|(a: 5 restarts)|image-cache|n0004\n"+
		"1 name|cannot pull image b:2|(b); correct it|image-cache|n0007\n"+
		"100 names|no matching pod here|(app=x)|gpu-metrics (100)|n0000, n0001, n0002 and 97 more")
	browser.Eventually(page, disagreeing, "")
	browser.Eventually(page, rowNames, longName+"3/3 NameTaken,n0004,n0009,n0019,n0029,n0039,n0049")
	page.Do(chromedp.Click(`#causes li:nth-child(2) button`))
	browser.Eventually(page, count, "10 of 100 nodes · 0 of 3 groups · 1 of 5 LocalServices")
	page.Do(chromedp.Click(`#causes li:nth-child(2) button`))
	browser.Eventually(page, count, "100 nodes · 3 groups · 5 LocalServices")
	page.Do(chromedp.Click(`#causes li:nth-child(1) button`))
	browser.Eventually(page, message, "the name is taken")
	browser.Eventually(page, `document.querySelector("#details").innerText.includes("Answering\n3/3")`, true)
}

// TestOneLineForACause: the status of a LocalService and its names have one line for one cause, and the lines that are
// not shown are counted.
func TestOneLineForACause(t *testing.T) {
	t.Parallel()
	m := loaded(columns(8, 3, func(c, i int, n *diagnose.Node) {
		switch {
		case c == 0 && i == 0:
			n.Endpoints = diagnose.Endpoints{}
			n.Finding = found(diagnose.Down, diagnose.NameConflict, "the name is taken", "app-00-n0000")
			advise(n, "delete it")
		case c > 0 && i == 1:
			notReady(n)
			n.Finding = found(diagnose.Down, diagnose.PodsNotReady, fmt.Sprint("Cause", c), "a: 5 restarts")
		}
	}))
	taken := m.Columns["default/app-00"]
	taken.Status, taken.Problem, taken.Reported = "NameTaken", "one is taken", true
	server := serve(t, m)
	page := browser.Open(t, server.URL(), 1280, 800)
	const first = "1 name|the name is taken|(app-00-n0000); delete it|app-00|n0000"
	lines := `document.querySelectorAll("#causes li").length`
	firstLine := causes + `.split("\n")[0]`
	last := `[...document.querySelectorAll("#causes button")].at(-1).innerText`
	browser.Eventually(page, lines, 6)
	// The lines with problems are the worst first; those with the same rank are in order.
	browser.Eventually(page, `[...document.querySelectorAll("#causes .what")].map((e) => e.textContent).join()`,
		"Cause1,Cause2,Cause3,Cause4,Cause5")
	browser.Eventually(page, last, "3 more problems")
	page.Do(chromedp.Click(`#causes .more`))
	browser.Eventually(page, lines, 9)
	browser.Eventually(page, causes+`.split("\n").at(-2)`, first)
	browser.Eventually(page, last, "Show fewer")
	page.Do(chromedp.Click(`#causes .more`))
	browser.Eventually(page, lines, 6)

	changed := maps.Clone(m.Columns)
	for c := 2; c < 8; c++ {
		delete(changed, fmt.Sprintf("default/app-%02d", c))
	}
	server.Publish(loaded(changed))
	browser.Eventually(page, lines, 2)
	browser.Eventually(page, firstLine, "1 name|Cause1|(a: 5 restarts)|app-01|n0001")
}

// TestNotices: what concerns a LocalService as a whole has a line, also while nothing is wrong with its names. What
// explains why names are Empty has one line with them, for all LocalServices. The counters say the same as the lines.
// With all namespaces, names have theirs.
func TestNotices(t *testing.T) {
	t.Parallel()
	m := loaded(columns(7, 3, func(c, i int, n *diagnose.Node) {
		if c == 1 || c > 3 && i > 0 {
			n.Endpoints = diagnose.Endpoints{}
			n.Finding = found(diagnose.Empty, diagnose.NoPods, "no matching pod here", "app=x")
		}
		if c == 3 && i == 0 {
			notReady(n)
		}
	}))
	m.Controller = "The controller does not seem to run"
	stopped := diagnose.Notice{Message: m.Controller}
	port := diagnose.Notice{Cause: "Other ports", Message: "Clients connect to port 8080"}
	noPods := func(app string) diagnose.Notice {
		return diagnose.Notice{Reason: diagnose.NoPods, Cause: "No pods", Message: "No pod has the labels " + app}
	}
	for i, notices := range [][]diagnose.Notice{{port, stopped}, {noPods("app=x")}, {stopped}, {}, {noPods("app=y")}} {
		m.Columns[fmt.Sprintf("default/app-%02d", i)].Notices = notices
	}
	page := browser.Open(t, serveNamespace(t, "", m).URL(), 1280, 800)
	browser.Eventually(page, causes, "1 name|exit code 1|(a: 5 restarts)|default/app-03|n0000\n"+
		"3 names|No pod has the labels app=x|default/app-01 (3)|n0000, n0001, n0002\n"+
		"2 names|No pod has the labels app=y|default/app-04 (2)|n0001, n0002\n"+
		"1 LocalService|Clients connect to port 8080|default/app-00\n"+
		"4 names|no matching pod here|(app=x)|default/app-05 (2), default/app-06 (2)|n0001, n0002")
	browser.Eventually(page, disagreeing, "")
	browser.Eventually(page, `document.querySelector("#problems").innerText`, m.Controller)
	page.Do(chromedp.Click(`#causes li:nth-child(4) button`))
	browser.Eventually(page, message, m.Controller+"|"+port.Message)
	page.Do(chromedp.Click(`.cell[aria-label^="default/app-00"]`))
	browser.Eventually(page, message, m.Controller+"|1 of 1 endpoint ready|"+port.Message)
	page.Do(chromedp.Click(`#causes li:nth-child(2) button`))
	browser.Eventually(page, count, "3 nodes · 1 of 7 LocalServices")
}

// TestOneAct: a line is about one cause and one act, and names what that is about. What follows from it comes after it.
func TestOneAct(t *testing.T) {
	t.Parallel()
	names := columns(7, 3, func(c, i int, n *diagnose.Node) {
		n.Endpoints = diagnose.Endpoints{}
		n.Finding = found(diagnose.Empty, diagnose.NoPods, "no matching pod here", fmt.Sprint("app=", c))
		switch c {
		case 3:
			advise(n, "scale e1")
		case 6:
			n.Finding = found(diagnose.Down, diagnose.PodsNotReady, "its port is taken", fmt.Sprint("9100/TCP: old-", i))
		}
	})
	noPods := func(act string) diagnose.Notice {
		return diagnose.Notice{Reason: diagnose.NoPods, Cause: "No pods", Message: "No pods: " + act}
	}
	for i, notice := range []diagnose.Notice{noPods("correct spec.selector"), noPods("scale it"), noPods("scale it"),
		6: {Message: "No controller watches namespace default"}} {
		names[fmt.Sprintf("default/app-%02d", i)].Notices = []diagnose.Notice{notice}
	}
	server := serve(t, loaded(names))
	page := browser.Open(t, server.URL(), 1280, 800)
	const lines = "1 LocalService|No controller watches namespace default|app-06\n" +
		"3 names|its port is taken|(9100/TCP: old-0)|(n0000, for example)|app-06 (3)|n0000, n0001, n0002\n" +
		"6 names|No pods: scale it|app-01 (3), app-02 (3)|n0000, n0001, n0002\n" +
		"3 names|No pods: correct spec.selector|app-00 (3)|n0000, n0001, n0002\n" +
		"6 names|no matching pod here|(app=4)|(n0000, for example)|app-04 (3), app-05 (3)|n0000, n0001, n0002\n" +
		"3 names|no matching pod here|(app=3); scale e1|app-03 (3)|n0000, n0001, n0002"
	browser.Eventually(page, causes, lines)
	browser.Eventually(page, disagreeing, "")
	page.Do(chromedp.Click(`#causes li:nth-child(3) button`))
	browser.Eventually(page, count, "3 nodes · 2 of 7 LocalServices")
	page.Do(chromedp.Click(`.cell[aria-label^="app-01"]`))
	browser.Eventually(page, message, "no matching pod here (app=1)|No pods: scale it")
	page.Do(chromedp.Evaluate(`showDetails({ column: "default/app-06", row: "n0001" })`, nil))
	browser.Eventually(page, message, "No controller watches namespace default|its port is taken (9100/TCP: old-1)")
}

// TestCommonNotice: what is not about one LocalService is on one line, which names none, and not in the details.
func TestCommonNotice(t *testing.T) {
	t.Parallel()
	names := columns(2, 3, func(int, int, *diagnose.Node) {})
	for _, c := range names {
		c.Notices = []diagnose.Notice{{Cause: "Services are left", Message: "Services are left: delete them", Common: true}}
	}
	page := browser.Open(t, serve(t, loaded(names)).URL(), 1280, 800)
	browser.Eventually(page, causes, "Cluster|Services are left: delete them")
	page.Do(chromedp.Evaluate(`showDetails({ column: "default/app-01", row: "n0001" })`, nil))
	browser.Eventually(page, `$("details").innerText.includes("app-01") && !$("details").innerText.includes("are left")`,
		true)
}

// TestManyActs: a cause with many acts has one line, and when it is chosen one for each of them.
func TestManyActs(t *testing.T) {
	t.Parallel()
	m := loaded(columns(6, 3, func(_, _ int, n *diagnose.Node) {
		n.Finding = found(diagnose.Empty, diagnose.NoPods, "no matching pod here", "")
	}))
	for _, c := range m.Columns {
		c.Notices = []diagnose.Notice{{Reason: diagnose.NoPods, Cause: "No pods", Message: "scale " + c.Name}}
	}
	page := browser.Open(t, serve(t, m).URL(), 1280, 800)
	const who = "app-00 (3), app-01 (3), app-02 (3), app-03 (3) and 2 more|n0000, n0001, n0002"
	const line = "18 names|No pods|app-00: scale app-00|others differ: click|" + who
	browser.Eventually(page, causes, line)
	browser.Eventually(page, disagreeing, "")
	page.Do(chromedp.Click(`#causes li:nth-child(1) button`))
	browser.Eventually(page, causes+`.split("\n").slice(0, 3).join("\n")`, "18 names|No pods|"+who+
		"\n3 names|scale app-00|app-00 (3)|n0000, n0001, n0002\n3 names|scale app-01|app-01 (3)|n0000, n0001, n0002")
	browser.Eventually(page, count, "3 nodes · 6 LocalServices")
	page.Do(chromedp.Click(`#causes li:nth-child(3) button`))
	browser.Eventually(page, count, "3 nodes · 1 of 6 LocalServices")
	page.Do(chromedp.Click(`#causes li:nth-child(3) button`))
	browser.Eventually(page, causes, line)
}

// TestWholeMessages: a long message of a problem breaks into lines, in a wide window and on a phone, and nothing of it
// is cut.
func TestWholeMessages(t *testing.T) {
	t.Parallel()
	m := troubled(40)
	long := strings.Repeat("a long message that nobody may cut, ", 20) + strings.Repeat("x", 300)
	m.Columns["default/"+longName].Problem = long
	url := serve(t, m).URL()
	for _, width := range []int64{1280, 390} {
		page := browser.Open(t, url, width, 800)
		browser.Eventually(page, `document.querySelector("#causes .message")?.innerText ?? ""`, long)
		if cut := browser.Eval[string](page, `[...document.querySelectorAll("#causes span")].filter((e) =>
			e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" ||
			e.getBoundingClientRect().right > innerWidth || !e.getClientRects().length)
			.map((e) => e.className + " " + e.innerText).join("\n")`); cut != "" {
			t.Errorf("at %d pixels, these are cut or hidden:\n%s", width, cut)
		}
	}
}

// TestTurned: with fewer nodes than LocalServices, the LocalServices are the lines of the table.
func TestTurned(t *testing.T) {
	t.Parallel()
	m := loaded(columns(30, 3, func(c, i int, n *diagnose.Node) {
		if c == 20 && i == 1 {
			notReady(n)
		}
	}))
	m.Columns["default/app-25"].Status, m.Columns["default/app-25"].Problem = "InvalidSpec", "no"
	server := serve(t, m)
	page := browser.Open(t, server.URL(), 1280, 800)
	browser.Eventually(page, count, "3 nodes · 30 LocalServices")
	browser.Eventually(page, `[...document.querySelectorAll(".columnheader")].map((e) => e.innerText).join()`,
		"n0000,n0001,n0002")
	browser.Eventually(page, rowNames, "app-253/3 InvalidSpec,app-202/3,app-003/3,app-013/3,app-023/3,"+
		"app-033/3,app-043/3")
	browser.Eventually(page, browser.Cell("default/app-20", "n0001"), "Down 0/1")
	browser.Eventually(page, browser.Cell("default/app-20", "n0002"), "Healthy 1/1")
	page.Do(chromedp.Focus("#grid"), chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(2)),
		chromedp.KeyEvent(kb.ArrowRight+kb.ArrowDown))
	browser.Eventually(page, current, "default/app-20 n0001")
	page.Do(chromedp.KeyEvent(kb.Enter))
	browser.Eventually(page, heading, "app-20 on n0001")
	// The table still moves beside the details: a click at a place may be one on another row.
	page.Do(chromedp.Evaluate(`[...document.querySelectorAll(".rowheader")]
		.find((e) => e.innerText.startsWith("app-00")).click()`, nil))
	browser.Eventually(page, heading, "default/app-00")
	page.Do(chromedp.Evaluate(`document.querySelector(".columnheader:nth-child(3)").click()`, nil))
	browser.Eventually(page, heading, "n0001")
	browser.Eventually(page, `[grid.ariaRowCount, grid.ariaColCount].join()`, "31,4")
	// A table turns when there are more nodes.
	server.Publish(loaded(columns(30, 31, func(int, int, *diagnose.Node) {})))
	browser.Eventually(page, rowNames, "n0000,n0001,n0002,n0003,n0004,n0005,n0006")
	browser.Eventually(page, browser.Cell("default/app-01", "n0002"), "Healthy 1/1")
}

// TestSelected: the cell that the details are about is whole on the screen beside them, with an outline that no other
// cell has. A LocalService has none.
func TestSelected(t *testing.T) {
	t.Parallel()
	m := troubled(100)
	page := browser.Open(t, serve(t, m).URL(), 1000, 700)
	browser.Eventually(page, count, "100 nodes · 3 groups · 5 LocalServices")
	const outlined = `[...document.querySelectorAll(".cell")].filter((e) => getComputedStyle(e).boxShadow !== "none")
		.map((e) => e.column + " " + e.row).join()`
	const whole = `((e, g, h, n) => e.right <= g.right && e.bottom <= g.bottom && e.left >= n && e.top >= h.bottom)(
		document.querySelector(".cell.active").getBoundingClientRect(), grid.getBoundingClientRect(),
		tables[1].element.querySelector(".head").getBoundingClientRect(),
		tables[1].element.querySelector(".head .rowheader").getBoundingClientRect().right)`
	for _, row := range []string{"n0004", "n0098"} {
		page.Do(chromedp.Evaluate(fmt.Sprintf(`showDetails({ column: "default/log-agent", row: %q })`, row), nil))
		browser.Eventually(page, outlined, "default/log-agent "+row)
		browser.Eventually(page, whole, true)
	}
	page.Do(chromedp.Click(`#causes li:nth-child(1) button`))
	browser.Eventually(page, heading, "default/"+longName)
	browser.Eventually(page, outlined, "")
	page.Do(chromedp.Click(`#details .close`))
	browser.Eventually(page, about, "")
}

// TestAddress: the filters and what is open are in the address, and a page that is loaded again has them.
func TestAddress(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, serve(t, troubled(40)).URL(), 1280, 800)
	browser.Eventually(page, count, "40 nodes · 3 groups · 5 LocalServices")
	token := browser.Eval[string](page, "location.hash")
	page.Do(chromedp.SendKeys("#by-name", "log"), chromedp.SendKeys("#by-node", "n00"),
		chromedp.Click(`#states button[value=Down]`), chromedp.Click(`#views button[value=map]`),
		chromedp.SetValue("#place", "pool"), chromedp.Evaluate(`$("place").dispatchEvent(new Event("change"))`, nil))
	// It may not be drawn yet.
	browser.Eventually(page, `($("map").focus(), document.activeElement === $("map"))`, true)
	page.Do(chromedp.KeyEvent(kb.Home + kb.Enter))
	const want = "?name=log&node=n00&state=Down&view=map&by=pool&row=n0009"
	browser.Eventually(page, search, want)
	page.Do(chromedp.Reload())
	browser.Eventually(page, count, "4 of 40 nodes · 0 of 3 groups · 1 of 5 LocalServices")
	browser.Eventually(page, heading, "n0009")
	browser.Eventually(page, search, want)
	browser.Eventually(page, `document.querySelector("#map h2")?.innerText ?? ""`,
		"general\n4 nodes\n4 nodes with problems")
	if got := browser.Eval[string](page, "location.hash"); got != token {
		t.Errorf("the token is %s; was %s", got, token)
	}
}

// TestMap: each node has its square in its zone; the keyboard and the pointer find what is on it.
func TestMap(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, serve(t, troubled(5000)).URL(), 1280, 800)
	browser.Eventually(page, `sections.map((s) => s.name + " " + s.rows.length).join()`,
		"Groups of nodes 3,eu-west-1a 1667,eu-west-1b 1667,eu-west-1c 1666")
	if n := browser.Eval[int](page, `document.querySelectorAll("*").length`); n > 300 {
		t.Errorf("%d elements for 5,000 nodes", n)
	}
	if fits := browser.Eval[bool](page, `map.scrollHeight <= map.clientHeight + 20`); !fits {
		t.Error("the map of 5,000 nodes does not fit on the screen")
	}
	browser.Eventually(page, `map.ariaLabel`, "Map of 5,003 nodes: 501 Down, 1 Degraded, 4501 Healthy, 0 Empty")
	page.Do(chromedp.Focus("#map"), chromedp.KeyEvent(kb.End))
	browser.Eventually(page, tip, "n4997\ngpu-metrics: no matching pod here (app=x)")
	page.Do(chromedp.Evaluate(`{
		const s = sections[1], i = s.rows.indexOf("n0009"), box = s.canvas.getBoundingClientRect();
		s.canvas.dispatchEvent(new PointerEvent("pointermove", { bubbles: true,
			clientX: box.left + (i % across) * pitch + 2,
			clientY: box.top + Math.floor(i / across) * pitch + 2 })); }`, nil))
	browser.Eventually(page, tip,
		"n0009\nlog-agent: exit code 1 (a: 5 restarts)\ngpu-metrics: no matching pod here (app=x)")
	page.Do(chromedp.KeyEvent(kb.Enter))
	browser.Eventually(page, `[...document.querySelectorAll("#details .link")].map((e) => e.innerText).join()`,
		"log-agent,dns-cache,image-cache,gpu-metrics")
	page.Picture("view-5000", "dark")
	page.Do(chromedp.Click(`#details .link`))
	browser.Eventually(page, heading, "log-agent on n0009")
}

// TestNamedMap: the map of a few nodes has their names.
func TestNamedMap(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, with(serve(t, troubled(40)).URL(), "view=map"), 1280, 800)
	browser.Eventually(page, `[map.hidden, step > pitch + 30].join()`, "false,true")
	// There is ink where the name of the first node is.
	browser.Eventually(page, `((s) => s.canvas.getContext("2d").getImageData((pitch + 4) * devicePixelRatio, 0,
		30 * devicePixelRatio, pitch * devicePixelRatio).data.some((x) => x > 0))(sections[1])`, true)
	page.Do(chromedp.Evaluate(`{
		const s = sections[1], box = s.canvas.getBoundingClientRect();
		s.canvas.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: box.left + step + pitch + 8,
			clientY: box.top + 2 })); }`, nil))
	browser.Eventually(page, `(`+tip+`).split("\n")[0]`, "n0003")
	many := browser.Open(t, with(serve(t, troubled(50)).URL(), "view=map"), 1280, 800)
	browser.Eventually(many, `[map.hidden, step === pitch].join()`, "false,true")
}

// TestHeads: the names of LocalServices above the table are never cut, in narrow columns and in wide ones, and opening
// details does not move them.
func TestHeads(t *testing.T) {
	t.Parallel()
	m := troubled(40)
	m.Columns["default/"+longName] = m.Columns["default/gpu-metrics"]
	m.Columns["default/"+longName].Name = longName
	delete(m.Columns, "default/gpu-metrics")
	url := serve(t, m).URL()
	for _, width := range []int64{1280, 390} {
		page := browser.Open(t, url, width, 800)
		browser.Eventually(page, count, "40 nodes · 4 LocalServices")
		page.Do(chromedp.Evaluate(`grid.scrollLeft = 1e6`, nil))
		const name = `document.querySelector(".columnheader:last-child b")`
		browser.Eventually(page, name+`.textContent`, longName)
		browser.Eventually(page,
			`((b, head) => b.top >= head.top && b.left >= head.left && b.right <= head.right)(`+name+
				`.getBoundingClientRect(), tables[1].element.querySelector(".head").getBoundingClientRect())`, true)
		if cut := browser.Eval[bool](page, `((b) => b.scrollHeight > b.clientHeight || b.scrollWidth > b.clientWidth)(`+
			name+`.parentNode)`); cut {
			t.Errorf("at %d pixels, the name is cut", width)
		}
		const looks = `[tables[1].width, tables[1].headHeight, tables[1].element.className].join()`
		before := browser.Eval[string](page, looks)
		page.Do(chromedp.Evaluate(`showDetails({ column: "default/log-agent", row: "n0009" })`, nil))
		browser.Eventually(page, `details.hidden`, false)
		browser.Eventually(page, looks, before)
	}
}

// TestGroups: groups of nodes have a table of their own. Each table has only LocalServices with names there, so that
// no line or column is empty, and the keyboard goes from one to the other.
func TestGroups(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, serve(t, troubled(40)).URL(), 1000, 700)
	browser.Eventually(page, `tables.map((t) => [...t.element.querySelectorAll(".columnheader .name")]
		.map((e) => e.innerText).join()).join("|")`,
		"eu-west-1a,eu-west-1b,eu-west-1c|dns-cache,gpu-metrics,image-cache,log-agent")
	page.Do(chromedp.Focus("#grid"), chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(2)),
		chromedp.KeyEvent(kb.ArrowRight))
	browser.Eventually(page, current, "default/"+longName+" topology.kubernetes.io/zone=eu-west-1b")
	page.Do(chromedp.KeyEvent(kb.ArrowDown))
	browser.Eventually(page, current, "default/gpu-metrics n0004")
	page.Do(chromedp.KeyEvent(kb.End, chromedp.KeyModifiers(2)))
	browser.Eventually(page, current, "default/log-agent n0038")
	// The first column is as wide as its names.
	browser.Eventually(page, `tables[1].names < 150`, true)
	// What is about a LocalService is shown in its table.
	page.Do(chromedp.Evaluate(`showDetails({ column: "default/`+longName+`", row: "" })`, nil))
	browser.Eventually(page, current, "default/"+longName+" topology.kubernetes.io/zone=eu-west-1a")
	page.Do(chromedp.SendKeys("#by-node", "n00"))
	browser.Eventually(page, `tables.map((t) => t.element.hidden).join()`, "true,false")
}

// TestPhone: on a phone, the page does not go sideways, whatever it shows, and the first nodes are in view.
func TestPhone(t *testing.T) {
	t.Parallel()
	url := serve(t, troubled(200)).URL()
	for _, query := range []string{"view=table", "view=map", "column=default/log-agent&row=n0009", "row=n0009",
		"column=default/" + longName} {
		page := browser.Open(t, with(url, query), 390, 844)
		browser.Eventually(page, count, "200 nodes · 3 groups · 5 LocalServices")
		browser.Eventually(page, `details.hidden`, strings.HasPrefix(query, "view="))
		if over := browser.Eval[int](page, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
			t.Errorf("%s: the page is %d pixels wider than the screen", query, over)
		}
		if query == "view=table" {
			browser.Eventually(page, `[...tables[1].element.querySelectorAll(".cell")].filter((e) =>
				(({ right, bottom }) => right <= innerWidth && bottom <= innerHeight)(e.getBoundingClientRect())).length > 7`, true)
		}
	}
}

// TestPhoneTurned: on a phone, LocalServices that are lines of the table have their namespaces first, and their names.
func TestPhoneTurned(t *testing.T) {
	t.Parallel()
	m := &view.Matrix{Status: view.Status{Loaded: true}, Columns: map[string]*view.Column{}}
	for _, namespace := range []string{"default", "hostnames", "shop"} {
		m.Columns[namespace+"/localservice-app"] = view.NewColumn(&diagnose.NodeList{Namespace: namespace,
			LocalService: "localservice-app", Items: []*diagnose.Node{{Node: "k8s01",
				Finding: diagnose.Finding{State: diagnose.Empty}}}})
	}
	page := browser.Open(t, serveNamespace(t, "", m).URL(), 390, 844)
	browser.Eventually(page, `[...document.querySelectorAll(".rowheader b, .row .rowheader small")].map((e) =>
		e.innerText + (e.scrollWidth > e.clientWidth ? "…" : "")).join()`,
		"default,localservice-app,0/0,hostnames,localservice-app,0/0,shop,localservice-app,0/0")
}

// TestCommands: the details have the commands to copy, quoted for a shell.
func TestCommands(t *testing.T) {
	t.Parallel()
	page := browser.Open(t, with(serve(t, troubled(40)).URL(), "column=default/log-agent&row=n0009"), 1280, 800)
	browser.Eventually(page, `[...document.querySelectorAll("#details .copyable code")].map((e) => e.innerText)
		.slice(1).join("\n")`, strings.Join([]string{
		`kubectl logs -n default pod-1 -c app --previous --context=test`,
		`kubectl describe pod -n default pod-1 --context=test`,
		`kubectl describe node n0009 --context=test`,
		`kubectl localservice nodes log-agent -n default --context=test`}, "\n"))
	// A flag does not break.
	browser.Eventually(page, `[...document.querySelectorAll("#details .copyable code span")]
		.filter((e) => e.innerText.startsWith("-") && e.getClientRects().length !== 1).length`, 0)
	browser.Eventually(page, `document.querySelectorAll("#details .copyable code span").length > 10`, true)
	browser.Eventually(page, `command("get", "it's", "$(x)")`, `kubectl get 'it'\''s' '$(x)' --context=test`)
}

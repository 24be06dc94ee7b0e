// Package browser opens the page of `kubectl localservice view` in a real browser, Debian's chromium. Its own tests
// give the page made-up data; those with clusters are in test/integration.
package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// pictures is the folder for pictures of the page: docs has one of the tests here, and one of test/integration.
var pictures = flag.String("pictures", "",
	"whole path of the directory to put the pictures of `kubectl localservice view` in")

// Page is an open page.
type Page struct {
	t   testing.TB
	ctx context.Context
	// about returns what to print if something is not as it should be.
	about func() string
}

var servingAt = regexp.MustCompile(`(?m)^Serving at (\S+)$`)

// View runs `kubectl localservice view` for a cluster, with some arguments, and opens its page. Both end with the test,
// and the plugin must end as with Ctrl-C.
func View(t testing.TB, cluster *framework.Cluster, width, height int64, args ...string) *Page {
	t.Helper()
	cmd := exec.Command(framework.PluginProgram.MustPath(t), append([]string{"view"}, args...)...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	plugin, err := framework.StartProcess(cmd, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plugin.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if code, err := plugin.Wait(); code != 0 || err != nil {
			t.Errorf("kubectl localservice view ended with exit code %d, %v:\n%s", code, err, plugin.Tail(20))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), framework.DefaultTimeout)
	defer cancel()
	line, err := plugin.WaitFor(ctx, "serving", func() string { return servingAt.FindString(plugin.Output()) })
	if err != nil {
		t.Fatal(err)
	}
	p := Open(t, servingAt.FindStringSubmatch(line)[1], width, height)
	p.about = func() string { return "the plugin says:\n" + plugin.Tail(20) }
	return p
}

// Open opens an address in a window of this size.
func Open(t testing.TB, url string, width, height int64) *Page {
	t.Helper()
	p := &Page{t: t, ctx: start(t), about: func() string { return "" }}
	p.Do(chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return p
}

// start starts a browser with an empty profile that contacts no other server.
func start(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("the test looks at the page in a browser: install Debian's chromium with `make packages`: %v", err)
	}
	allocator, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()),
		chromedp.WSURLReadTimeout(framework.DefaultTimeout), chromedp.ExecPath(path),
		chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancelBrowser := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // Waits until the browser has ended.
			t.Logf("close the browser: %v", err)
		}
		cancelBrowser()
		cancel()
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// Do acts on the page.
func (p *Page) Do(actions ...chromedp.Action) {
	p.t.Helper()
	if err := p.Try(actions...); err != nil {
		p.t.Fatal(err)
	}
}

// Try is Do, but returns the error.
func (p *Page) Try(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(p.ctx, framework.DefaultTimeout)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// Eval returns the value of an expression of JavaScript on the page.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	var value T
	p.Do(chromedp.Evaluate(expression, &value))
	return value
}

// Eventually waits until an expression has a value.
func Eventually[T any](p *Page, expression string, want T) {
	p.t.Helper()
	err := framework.Poll(p.t.Context(), func(context.Context) error {
		var got T
		if err := p.Try(chromedp.Evaluate(expression, &got)); err != nil {
			return fmt.Errorf("%s: %w", expression, err)
		}
		return framework.Equal(expression, got, want)
	})
	if err != nil {
		p.t.Fatalf("%v\nthe page says:\n%s\n%s", err, Eval[string](p, "document.body.innerText"), p.about())
	}
}

// Picture takes one of the pictures in docs, if they are asked for, in a light or dark scheme.
func (p *Page) Picture(name, scheme string) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	var png []byte
	p.Do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}}), chromedp.Evaluate(`schedule(true)`, nil))
	Eventually(p, `scheduled`, false)
	p.Do(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// Cell returns an expression for a cell's state and text, such as "Healthy 1/1"; "" if it is empty, or not drawn.
func Cell(column, row string) string {
	return fmt.Sprintf(`((e) => !e ? "" : e.dataset.state + " " + e.textContent)`+
		`([...document.querySelectorAll(".cell")].find((e) => e.column === %s && e.row === %s && e.dataset.state))`,
		quote(column), quote(row))
}

// quote returns a text as a JavaScript literal.
func quote(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		panic(err) // A string.
	}
	return string(literal)
}

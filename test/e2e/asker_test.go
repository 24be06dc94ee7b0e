package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// askCommand makes the test binary a client that sends requests until SIGTERM, and then reports the failures.
const askCommand = "e2e-ask"

// askTimeout is that of a request: the machine may be busy.
const askTimeout = 30 * time.Second

// asker is a client that sends requests for URLs, each with the node that must answer, "" for any.
type asker struct {
	Pause   time.Duration // between the requests for one URL
	Cache   time.Duration // for how long it keeps the addresses of a name, as many resolvers do
	MayFail bool          // requests may, but no answer may come from a wrong node
	URLs    map[string]string
}

// tally counts the results of a client's requests.
type tally struct {
	Asked, Answered int
	Failed          []string
}

// keepAsking runs the asker on its input until SIGTERM, and writes a tally to its output.
func keepAsking(in io.Reader, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var a asker
	if err := json.NewDecoder(in).Decode(&a); err != nil {
		return err
	}
	var total tally
	var mu sync.Mutex
	var asking sync.WaitGroup
	for url, node := range a.URLs {
		asking.Go(func() {
			for v := (visitor{url: url, cache: a.Cache}); ctx.Err() == nil; time.Sleep(a.Pause) {
				err := visit(&v, node)
				mu.Lock()
				if total.Asked++; err == nil {
					total.Answered++
				} else if !a.MayFail || errors.Is(err, errWrongNode) {
					when := time.Now().Format("15:04:05.000")
					total.Failed = append(total.Failed, fmt.Sprintf("%s %s: %v", when, url, err))
				}
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return json.NewEncoder(out).Encode(total)
}

// visit makes one request, which this node must answer, any for "".
func visit(v *visitor, node string) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	body, err := v.get(ctx)
	if err != nil {
		return err
	}
	if m := answerPattern.FindStringSubmatch(body); m == nil || node != "" && m[2] != node {
		return fmt.Errorf("%w: answered %q, want one from %s", errWrongNode, body, node)
	}
	return nil
}

// startAsker starts a client until the function that it returns is called. If nothing was answered by then, or a
// request has failed that may not, the test fails.
func startAsker(t testing.TB, what, from string, a asker) (stop func()) {
	t.Helper()
	in, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "tally.json")
	file, err := os.Create(result)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(framework.PlaygroundProgram.MustPath(t), "run", "--dir", cluster.Dir(), "--node", from, "--",
		self, askCommand)
	cmd.Stdin, cmd.Stdout = strings.NewReader(string(in)), file
	process, err := framework.StartProcess(cmd, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		err := process.Signal(syscall.SIGTERM)
		code, waitErr := process.Wait()
		content, readErr := os.ReadFile(result)
		var got tally
		if err := errors.Join(err, waitErr, readErr, json.Unmarshal(content, &got)); err != nil || code != 0 {
			t.Errorf("the client that asks %s ended with %d: %v\n%s", what, code, err, process.Tail(20))
			return
		}
		t.Logf("%s, asked from %s: %d of %d requests were answered", what, from, got.Answered, got.Asked)
		if got.Answered == 0 || len(got.Failed) > 0 {
			t.Errorf("%s:\n%s", what, framework.LastLines(strings.Join(got.Failed, "\n"), 20))
		}
	})
	t.Cleanup(stop)
	return stop
}

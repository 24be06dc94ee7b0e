package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// step is a command of a document, with its documented output.
type step struct {
	line    int    // in the document
	section string // the heading above it
	command string
	output  []string
}

// walkThrough is the name of the commands in most documents.
const walkThrough = "walk-through"

// parseSteps finds the steps of that name in a Markdown document: those in the console blocks between the lines
// <!-- name --> and <!-- /name -->. In a block, a line that begins with "$ " is a command. The lines up to the next
// command are its standard output and standard error together; without any, the output may be anything.
func parseSteps(document, name string) (steps []step) {
	begin, end := "<!-- "+name+" -->", "<!-- /"+name+" -->"
	inside, fenced, section := false, false, ""
	for i, line := range strings.Split(document, "\n") {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case line == begin || line == end:
			inside = line == begin
		case !fenced && strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
		case strings.HasPrefix(line, "```"):
			fenced = !fenced && inside && line == "```console"
		case fenced && isCommand:
			steps = append(steps, step{line: i + 1, section: section, command: command})
		case fenced && len(steps) > 0:
			steps[len(steps)-1].output = append(steps[len(steps)-1].output, line)
		}
	}
	return steps
}

// What differs from one run to the next, and its placeholder.
var (
	columns = regexp.MustCompile(` {3,}`)
	age     = regexp.MustCompile(`(^|\s)(\d+[dhms])+(\s|$)`)
	address = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	// Kubernetes generates names from these characters: no vowels, and none that looks like another.
	podName  = regexp.MustCompile(`(-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
	nodeName = regexp.MustCompile(`\bk8s\d\d([.-]lab)?\b`)
)

// normalize replaces what differs from one run to the next. Which pods are on which node is one of these things, unless
// the command names a node. Lines about pods that are then equal count as one, as their number on a node differs, too.
func normalize(command string, output []string) []string {
	var lines []string
	for _, line := range output {
		line = columns.ReplaceAllString(strings.TrimRight(line, " \r"), "   ")
		line = age.ReplaceAllString(line, "${1}AGE${3}")
		line = address.ReplaceAllString(line, "ADDRESS")
		named := podName.ReplaceAllString(line, "-POD")
		if named != line && !nodeName.MatchString(command) {
			named = nodeName.ReplaceAllString(named, "NODE")
		}
		if line == "" || named != line && len(lines) > 0 && lines[len(lines)-1] == named {
			continue
		}
		lines = append(lines, named)
	}
	return lines
}

// checkOutput returns nil if a command's output is the expected one. In that, "…" stands for anything within a line,
// and on a line of its own for any number of lines.
func checkOutput(command string, want, got []string) error {
	pattern := ""
	for _, line := range normalize(command, want) {
		if line == "…" {
			pattern += `(.*\n)*`
		} else {
			pattern += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`
		}
	}
	seen := strings.Join(append(normalize(command, got), ""), "\n")
	if len(want) == 0 || regexp.MustCompile("^"+pattern+"$").MatchString(seen) {
		return nil
	}
	return fmt.Errorf("the output is:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// reader types the commands of the walk-through in bash.
type reader struct {
	t       *testing.T
	fast    bool   // does not look twice
	dir     string // for the playground
	env     []string
	replace *strings.Replacer // what the reader has in other places
}

// newReader returns a reader for whom a cluster's folder and the programs are in other places, and who replaces texts
// according to pairs of before and after.
func newReader(t *testing.T, pairs ...string) *reader {
	dir, err := os.MkdirTemp("", "lsc") // Not t.TempDir: the paths of sockets in it have little room.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	quoted := func(program framework.Program) string { return "'" + program.MustPath(t) + "'" }
	return &reader{
		t: t, dir: filepath.Join(dir, "cluster"),
		env: append(os.Environ(), "KUBECONFIG=", "BASH_ENV=", "no_proxy=*",
			"PLAYGROUND_DIR="+filepath.Join(dir, "cluster"), "KUBECACHEDIR="+filepath.Join(dir, "kubectl")),
		replace: strings.NewReplacer(append(pairs, "/tmp/playground-$UID", filepath.Join(dir, "cluster"),
			"bin/playground", quoted(framework.PlaygroundProgram), "bin/localservice-app", quoted(framework.AppProgram),
			// Other tests may run on the machine at the same time, and use the port of the controller.
			"bin/local-service-controller", quoted(framework.ControllerProgram)+" -http-address=127.0.0.1:0")...),
	}
}

// bash returns a command as the reader types it.
func (r *reader) bash(ctx context.Context, command string) *exec.Cmd {
	const alias = `kubectl() { bin/playground kubectl "$@"; }; `
	cmd := exec.CommandContext(ctx, "bash", "-c", r.replace.Replace(alias+command))
	cmd.Dir, cmd.Env = filepath.Dir(framework.ModuleFile("README.md")), r.env
	cmd.WaitDelay = time.Second // What it has started may still have its output.
	return cmd
}

// lines returns the lines of a command's output, as the reader sees them.
func (r *reader) lines(output string) []string {
	output = strings.ReplaceAll(output, r.dir, fmt.Sprintf("/tmp/playground-%d", os.Getuid()))
	return strings.Split(strings.TrimRight(output, "\n"), "\n")
}

// onlyLooks are commands that show what the reader waits for.
var onlyLooks = regexp.MustCompile(`^(playground )?kubectl (get|localservice nodes|exec .* -- cat) `)

// follow types a command. If it only shows something, and the reader is not fast, follow repeats it until it shows the
// expected output: most readers are slower than this test.
func (r *reader) follow(st step) error {
	if variable, ok := strings.CutPrefix(st.command, "export "); ok {
		r.env = append(r.env, os.Expand(r.replace.Replace(variable), func(name string) string {
			if name == "PWD" {
				return filepath.Dir(framework.ModuleFile("README.md"))
			}
			return os.Getenv(name)
		}))
		return nil
	}
	if command, ok := strings.CutSuffix(st.command, " &"); ok {
		return r.start(command, st.output)
	}
	return framework.Poll(r.t.Context(), func(ctx context.Context) error {
		output, err := r.bash(ctx, st.command).CombinedOutput()
		failed := err != nil
		if failed {
			err = fmt.Errorf("%w; the output is:\n%s", err, output)
		} else {
			err = checkOutput(st.command, st.output, r.lines(string(output)))
		}
		// After an answer from a wrong node, the test does not wait for a better one.
		again := onlyLooks.MatchString(st.command) && !r.fast || strings.Contains(st.command, "curl ") && failed
		if err != nil && !again {
			return framework.Hopeless(err)
		}
		return err
	})
}

// start starts a command that ends with the test, after those that were started later, and waits until it has printed
// what is expected.
func (r *reader) start(command string, want []string) error {
	process, err := framework.StartProcess(r.bash(context.Background(), "exec "+command), syscall.SIGTERM)
	if err != nil {
		return err
	}
	r.t.Cleanup(func() {
		err := process.Signal(syscall.SIGTERM)
		if exitCode, waitErr := process.Wait(); err != nil || waitErr != nil || exitCode != 0 {
			r.t.Errorf("%s: exit code %d, %v", command, exitCode, errors.Join(err, waitErr))
		}
		process.Kill()
		if r.t.Failed() {
			r.t.Logf("%s\n%s", command, process.Tail(60))
		}
	})
	ctx, cancel := context.WithTimeout(r.t.Context(), framework.DefaultTimeout)
	defer cancel()
	_, err = process.WaitFor(ctx, "printing what is expected", func() string {
		output := process.Output()
		if checkOutput(command, append(want, "…"), r.lines(output)) != nil {
			return ""
		}
		return "all"
	})
	return err
}

// load brings an image to the nodes, which on a reader's cluster pull it.
func (r *reader) load(image string) {
	r.t.Helper()
	load := exec.CommandContext(r.t.Context(), framework.PlaygroundProgram.MustPath(r.t), "load", image)
	load.Env = r.env
	if output, err := load.CombinedOutput(); err != nil {
		r.t.Fatalf("loading %s: %v\n%s", image, err, output)
	}
}

// skipped has the commands that the reader must type, but that ran before this test.
var skipped = regexp.MustCompile(`^(git|grep|make (demo|build|test-unit)|playground up)\b`)

// stepsOf returns the steps of that name in a document.
func stepsOf(t *testing.T, path, name string, atLeast int) []step {
	t.Helper()
	document, err := os.ReadFile(framework.ModuleFile(strings.Split(path, "/")...))
	if err != nil {
		t.Fatal(err)
	}
	steps := parseSteps(string(document), name)
	if len(steps) < atLeast {
		t.Fatalf("the %s of %s has %d commands", name, path, len(steps))
	}
	return steps
}

// TestREADME checks that README.md shows what the walk-through does, which TestWalkThrough checks.
func TestREADME(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "docs/quickstart.md", walkThrough, 10)
	for _, st := range stepsOf(t, "README.md", walkThrough, 5) {
		if !skipped.MatchString(st.command) && !slices.ContainsFunc(steps, func(other step) bool {
			return st.command == other.command && slices.Equal(st.output, other.output)
		}) {
			t.Errorf("README.md:%d: docs/quickstart.md does not have this command with this output: $ %s", st.line,
				st.command)
		}
	}
}

// TestWalkThrough types the commands of the walk-through, and then those of the recipes, one after the other, and
// compares their output with the documented one. Then it does so with the quick start, and with the way from a change to
// a cluster. A machine has room for few clusters at the same time.
func TestWalkThrough(t *testing.T) {
	t.Parallel()
	t.Run("walk-through and recipes", func(t *testing.T) {
		r := newReader(t)
		r.fast = true
		r.read("docs/quickstart.md", walkThrough, 10)
		r.fast = false
		r.load(localImage(t, busyboxImage))
		r.load(localImage(t, dnsImage))
		r.read("docs/recipes.md", walkThrough, 10)
	})
	t.Run("quick start", quickStart)
}

// read follows the steps of that name in a document.
func (r *reader) read(path, name string, atLeast int) {
	r.t.Helper()
	for _, st := range stepsOf(r.t, path, name, atLeast) {
		if skipped.MatchString(st.command) {
			continue
		}
		began := time.Now()
		if err := r.follow(st); err != nil {
			r.t.Fatalf("%s:%d: $ %s\n%v", path, st.line, st.command, err)
		}
		r.t.Logf("%5.1f s  $ %s", time.Since(began).Seconds(), st.command)
	}
}

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// The walk-through of README.md is what stands in its code blocks between these two lines. In a block, a line that begins
// with "$ " is a command; one that ends with "\" goes on in the next line. The lines up to the next command are the
// command's output, both outputs together; without any, the output may be anything. Blocks without commands, and blank
// lines, are ignored.
const (
	walkThroughBegin = "<!-- walk-through -->"
	walkThroughEnd   = "<!-- /walk-through -->"
)

// step is a command of the walk-through, with the output that the reader is told to expect.
type step struct {
	line       int // in README.md
	command    string
	background bool // it ends with "&", and what is expected is waited for while it runs
	output     []string
}

// skipped are commands that the reader has to type, and that were run before this test.
var skipped = regexp.MustCompile(`^(make|git|cd)\b`)

// parseWalkThrough finds the steps in a Markdown document.
func parseWalkThrough(document string) ([]step, error) {
	var steps []step
	inside, fenced, continued := false, false, false
	for i, line := range strings.Split(document, "\n") {
		line = strings.TrimRight(line, " \r")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == walkThroughBegin || trimmed == walkThroughEnd:
			if inside == (trimmed == walkThroughBegin) || fenced {
				return nil, fmt.Errorf("line %d: %s is in the wrong place", i+1, trimmed)
			}
			inside = !inside
		case !inside:
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			if fenced {
				steps = append(steps, step{}) // What is in the block before its first command belongs to this, and is dropped.
			}
			continued = false
		case !fenced || trimmed == "":
		case continued:
			last := &steps[len(steps)-1]
			last.command += strings.TrimSuffix(strings.TrimPrefix(line, "> "), `\`)
			continued = strings.HasSuffix(line, `\`)
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: strings.TrimSuffix(line[2:], `\`)})
			continued = strings.HasSuffix(line, `\`)
		default:
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	if inside || fenced {
		return nil, fmt.Errorf("the walk-through does not end")
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.command == "" })
	for i := range steps {
		if command, ok := strings.CutSuffix(steps[i].command, "&"); ok && !strings.HasSuffix(command, "&") {
			steps[i].command, steps[i].background = strings.TrimSpace(command), true
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("there are no commands between %s and %s", walkThroughBegin, walkThroughEnd)
	}
	return steps, nil
}

// What differs from one run to the next, and what stands for it.
var (
	columns = regexp.MustCompile(` {3,}`)
	age     = regexp.MustCompile(`(^|\s)(\d+[dhms])+(\s|$)`)
	address = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	// The characters are those that Kubernetes makes names of: no vowels, and nothing that looks like another.
	podName  = regexp.MustCompile(`(-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
	nodeName = regexp.MustCompile(`\bk8s\d\d\b`)
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

// checkOutput returns nil if a command's output is the expected one. In that, "…" stands for anything within a line, and
// on a line of its own for any number of lines.
func checkOutput(command string, want, got []string) error {
	if len(want) == 0 || matchLines(normalize(command, want), normalize(command, got)) {
		return nil
	}
	return fmt.Errorf("the output is:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func matchLines(want, got []string) bool {
	anyLines := func(i int) bool { return i < len(want) && strings.TrimSpace(want[i]) == "…" }
	// at are the i for which want[:i] matches the lines so far.
	at := map[int]bool{}
	add := func(to map[int]bool, i int) {
		for to[i] = true; anyLines(i); i++ {
			to[i+1] = true
		}
	}
	add(at, 0)
	for _, line := range got {
		next := map[int]bool{}
		for i := range at {
			if anyLines(i) {
				add(next, i)
			} else if i < len(want) && matchLine(want[i], line) {
				add(next, i+1)
			}
		}
		at = next
	}
	return at[len(want)]
}

func matchLine(want, got string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// shell is a bash that runs one command after the other, as a terminal does, in a directory that looks like the
// repository after `make build playground`.
type shell struct {
	dir     string
	cmd     *exec.Cmd
	in      io.WriteCloser
	results chan string // exit codes, closed when the shell ends
	n       int
}

// startShell starts a bash. All that was started in it ends with the test.
func startShell(t *testing.T) *shell {
	t.Helper()
	dir, err := os.MkdirTemp("", "lsc") // Not t.TempDir: the paths of sockets in it have little room.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	artifacts := framework.MustModuleFile(t, "artifacts")
	// Beside this test, others may run on the machine, and the port of the controller may be taken.
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s -http-address=127.0.0.1:0 \"$@\"\n", quote(framework.ControllerProgram.MustPath(t)))
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "bin"), 0o755),
		os.Symlink(artifacts, filepath.Join(dir, "artifacts")),
		os.Symlink(framework.PlaygroundProgram.MustPath(t), filepath.Join(dir, "bin", "playground")),
		os.Symlink(framework.AppProgram.MustPath(t), filepath.Join(dir, "bin", "localservice-app")),
		os.WriteFile(filepath.Join(dir, "bin", "local-service-controller"), []byte(wrapper), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	s := &shell{dir: dir, cmd: exec.Command("bash", "--noprofile", "--norc")}
	s.cmd.Dir = dir
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"KUBECONFIG", "BASH_ENV", "CDPATH", "OLDPWD", "PWD"}, name)
	})
	s.cmd.Env = append(s.cmd.Env, "PWD="+dir, "PLAYGROUND_DIR="+s.playgroundDir(), "KUBECACHEDIR="+filepath.Join(dir, "kubectl"), "no_proxy=*")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // A Ctrl-C is for the test, which ends all in order.
	log, err := os.Create(filepath.Join(dir, "output-0"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stderr = log
	out, err1 := s.cmd.StdoutPipe()
	in, err2 := s.cmd.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s.in, s.results = in, make(chan string, 1)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.results)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.results <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = s.in.Close() // It reads the end of its input, also when the test is killed, and ends all jobs.
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("the shell of the walk-through: %v", err)
		}
	})
	// Job control makes every background command a process group. The last started ends first: the cluster comes last.
	fmt.Fprintln(s.in, `set -m
shopt -s expand_aliases
kubectl() { bin/playground kubectl "$@"; }
trap 'for job in $(jobs -p | tac); do kill -TERM -- "-$job" 2>/dev/null && wait "$job"; done; exit 0' EXIT`)
	return s
}

// playgroundDir stands for the default directory of playgrounds.
func (s *shell) playgroundDir() string { return filepath.Join(s.dir, "cluster") }

// run runs a command and returns its output and exit code, of a background command that of its start.
func (s *shell) run(st step) (output *os.File, exitCode int, err error) {
	s.n++
	output, err = os.Create(filepath.Join(s.dir, fmt.Sprintf("output-%d", s.n)))
	if err != nil {
		return nil, 0, err
	}
	command := strings.ReplaceAll(st.command, "/tmp/playground-$UID", s.playgroundDir())
	run := fmt.Sprintf("eval %s </dev/null >%s 2>&1", quote(command), quote(output.Name()))
	if st.background {
		run = fmt.Sprintf("{ %s; echo $? >%s; } &", run, quote(output.Name()+ended))
	}
	_, err = fmt.Fprintln(s.in, run+"\necho $?")
	if err != nil {
		return output, 0, err
	}
	select {
	case result, ok := <-s.results:
		if !ok {
			return output, 0, errors.New("the shell has ended")
		}
		_, err := fmt.Sscan(result, &exitCode)
		return output, exitCode, err
	case <-time.After(framework.DefaultTimeout):
		return output, 0, errors.Join(fmt.Errorf("it has not ended after %v", framework.DefaultTimeout), s.endChildren())
	}
}

// endChildren ends what runs in the shell, so that the shell goes on.
func (s *shell) endChildren() error {
	pid := s.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGTERM) // Fails only if it has ended.
		}
	}
	return nil
}

// ended makes the name of the file that has the exit code of a background command, once it has ended.
const ended = ".exit-code"

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// readLines are the lines of a command's output, as the reader would see them.
func (s *shell) readLines(output *os.File) ([]string, error) {
	b, err := os.ReadFile(output.Name())
	seen := strings.ReplaceAll(string(b), s.playgroundDir(), fmt.Sprintf("/tmp/playground-%d", os.Getuid()))
	return strings.Split(strings.TrimRight(seen, "\n"), "\n"), err
}

// TestWalkThrough types the commands of README.md, one after the other, and compares what they print with what it says.
func TestWalkThrough(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile(framework.MustModuleFile(t, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	runWalkThrough(t, string(document))
}

func runWalkThrough(t *testing.T, document string) {
	t.Helper()
	steps, err := parseWalkThrough(document)
	if err != nil {
		t.Fatalf("README.md: %v", err)
	}
	s := startShell(t)
	for _, st := range steps {
		if skipped.MatchString(st.command) {
			continue
		}
		began := time.Now()
		if err := s.follow(t.Context(), st); err != nil {
			t.Fatalf("README.md:%d: $ %s\n%v\n%s", st.line, st.command, err, s.outputs())
		}
		t.Logf("%5.1f s  $ %s", time.Since(began).Seconds(), st.command)
	}
}

// follow types a command. One that only looks is typed again until it shows what is expected, as a reader would do, who
// is slower than this test.
func (s *shell) follow(ctx context.Context, st step) error {
	looks := strings.HasPrefix(st.command, "kubectl get ")
	asks := strings.Contains(st.command, "curl ")
	began := time.Now()
	for {
		output, exitCode, err := s.run(st)
		if err != nil {
			return err
		}
		if st.background {
			return s.waitForOutput(ctx, st, output)
		}
		got, err := s.readLines(output)
		if err != nil {
			return err
		}
		if exitCode != 0 {
			err = fmt.Errorf("exit code %d; the output is:\n%s", exitCode, strings.Join(got, "\n"))
		} else {
			err = checkOutput(st.command, st.output, got)
		}
		again := looks || asks && exitCode != 0 // An answer from a wrong node is none to wait for a better one.
		if err == nil || !again || time.Since(began) > framework.DefaultTimeout || ctx.Err() != nil {
			return err
		}
	}
}

// waitForOutput waits until a background command has printed what is expected.
func (s *shell) waitForOutput(ctx context.Context, st step, output *os.File) error {
	var hasEnded error
	err := framework.Poll(ctx, func(context.Context) error {
		exitCode, endErr := os.ReadFile(output.Name() + ended)
		got, err := s.readLines(output)
		if err == nil {
			err = checkOutput(st.command, append(slices.Clone(st.output), "…"), got)
		}
		if err != nil && endErr == nil {
			hasEnded = fmt.Errorf("it has ended, with exit code %s%w", exitCode, err)
			return nil // It will not print any more.
		}
		return err
	})
	return errors.Join(hasEnded, err)
}

// outputs are the ends of what all commands have printed, for messages.
func (s *shell) outputs() string {
	var b strings.Builder
	for i := range s.n + 1 { // 0 is that of the shell itself.
		if out, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("output-%d", i))); err != nil {
			fmt.Fprintln(&b, err)
		} else if len(out) > 0 {
			fmt.Fprintf(&b, "--- output %d, its end:\n%s\n", i, framework.LastLines(string(out), 30))
		}
	}
	return b.String()
}

func TestParseWalkThrough(t *testing.T) {
	t.Parallel()
	steps, err := parseWalkThrough("```sh\n$ not this\n```\n" + walkThroughBegin + `
Prose with $ signs.
` + "```console" + `
$ kubectl get \
    node
NAME

k8s01
$ serve -x=y &
ready
` + "```\n```yaml\nkind: Service\n```\n" + "```\n$ curl a && curl b\n```\n" + walkThroughEnd + "\n```\n$ nor this\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []step{
		{line: 7, command: "kubectl get     node", output: []string{"NAME", "k8s01"}},
		{line: 12, command: "serve -x=y", background: true, output: []string{"ready"}},
		{line: 19, command: "curl a && curl b"},
	}
	if got, want := fmt.Sprintf("%+v", steps), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, bad := range []string{"", walkThroughBegin + "\n" + walkThroughEnd, walkThroughBegin + "\n```\n$ x\n```", walkThroughEnd} {
		if steps, err := parseWalkThrough(bad); err == nil {
			t.Errorf("%q has the steps %v; want an error", bad, steps)
		}
	}
}

func TestCheckOutput(t *testing.T) {
	t.Parallel()
	const (
		pods  = "kubectl get pod -L vm/rack"
		curl  = "curl http://localservice-app-k8s03:8080"
		reply = "hello  this message from localservice-app-6bb6d5cc79-l49gt/k8s03"
	)
	tests := []struct {
		name, command, want, got string
		differs                  bool
	}{
		{name: "nothing is expected", got: "anything"},
		{name: "equal", want: "a\nb", got: "a\nb"},
		{name: "other", want: "a\nb", got: "a\nc", differs: true},
		{name: "too much", want: "a", got: "a\nb", differs: true},
		{name: "too little", want: "a\nb", got: "a", differs: true},
		{name: "ages and widths of columns", want: "NAME   AGE\nx      5s", got: "NAME      AGE\nx         1m10s"},
		{name: "addresses", want: "x   10.96.3.4   80", got: "x   10.96.33.44   80"},
		{name: "within a line", want: "version … of …", got: "version 1.2.3 of 2020"},
		{name: "any number of lines", want: "a\n…\nz", got: "a\nb\nc\nz"},
		{name: "any number of lines, twice", want: "…\nb\n…\nb\n…", got: "a\nb\nc\nb"},
		{name: "any number of lines, but not this one", want: "…\nb\n…\nb\n…", got: "a\nb\nc", differs: true},
		{name: "no lines", want: "a\n…\nz", got: "a\nz"},
		{name: "pods", command: pods, want: "app-6bb6d5cc79-9xchw   1/1   k8s01", got: "app-5dd5c9c5f6-h6kpn   1/1   k8s02\napp-5dd5c9c5f6-zzzzz   1/1   k8s03"},
		{name: "a pod that is not ready", command: pods, want: "app-6bb6d5cc79-9xchw   1/1", got: "app-5dd5c9c5f6-h6kpn   0/1", differs: true},
		{name: "the right node", command: curl, want: reply, got: strings.ReplaceAll(reply, "l49gt", "2br6m") + "\n" + reply},
		{name: "a wrong node", command: curl, want: reply, got: reply + "\n" + strings.ReplaceAll(reply, "k8s03", "k8s02"), differs: true},
		{name: "one space", command: curl, want: reply, got: strings.ReplaceAll(reply, "  ", " "), differs: true},
		{name: "Services are not pods", want: "demo-k8s01   ClusterIP", got: "demo-k8s02   ClusterIP", differs: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = strings.Split(tt.want, "\n")
			}
			if err := checkOutput(tt.command, want, strings.Split(tt.got, "\n")); (err != nil) != tt.differs {
				t.Errorf("error: %v; want one: %v", err, tt.differs)
			}
		})
	}
}

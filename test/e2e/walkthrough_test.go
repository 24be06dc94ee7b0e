package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// The walk-through of README.md is what stands in its code blocks between these two lines. In a block, a line that
// begins with "$ " is a command; one that ends with "\" goes on in the next line. The lines up to the next command are
// the command's output, both outputs together; without any, the output may be anything. Blocks without commands, and
// blank lines, are ignored.
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

// checkOutput returns nil if a command's output is the expected one. In that, "…" stands for anything within a line,
// and on a line of its own for any number of lines.
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

// ended makes the name of the file that has the exit code of a background command, once it has ended.
const ended = ".exit-code"

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

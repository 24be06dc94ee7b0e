package alerts

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// runbook is the documentation of an alert.
type runbook struct {
	text    string
	shell   []string // commands of its blocks, one a line
	queries []string // expressions for Prometheus
}

var block = regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```")

// readRunbooks returns the sections of docs/runbooks.md, by the name of their alert.
func readRunbooks(t testing.TB) map[string]runbook {
	t.Helper()
	_, sections, _ := strings.Cut(readFile(t, framework.ModuleFile("docs", "runbooks.md")), "\n## ")
	books := map[string]runbook{}
	for section := range strings.SplitSeq(sections, "\n## ") {
		alert, text, _ := strings.Cut(section, "\n")
		books[alert] = newRunbook(t, alert, text)
	}
	return books
}

func newRunbook(t testing.TB, alert, text string) runbook {
	t.Helper()
	book := runbook{text: text}
	for _, match := range block.FindAllStringSubmatch(book.text, -1) {
		lines := strings.Split(strings.TrimSpace(match[2]), "\n")
		switch match[1] {
		case "bash":
			book.shell = append(book.shell, lines...)
		case "promql":
			book.queries = append(book.queries, lines...)
		default:
			t.Errorf("%s: a block is neither bash nor promql, but %q", alert, match[1])
		}
	}
	return book
}

var (
	part       = regexp.MustCompile(`(?m)^\*\*([A-Za-z]+)\.\*\*`)
	code       = regexp.MustCompile("`([^`\n]+)`")
	chartValue = regexp.MustCompile(`(?:^|[ =])([a-zA-Z]+(?:\.[a-zA-Z]+)+)`)
)

// TestRunbooks tests that there is a runbook for each alert, an alert for each runbook, that each has the same parts,
// and that what they name exists: commands and flags of kubectl, values of the chart. hack/verify-docs.sh looks at the
// rest.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, rule := range readRules(t) {
		alerts = append(alerts, rule.Alert)
	}
	slices.Sort(alerts)
	books := readRunbooks(t)
	if titles := slices.Sorted(maps.Keys(books)); !slices.Equal(alerts, titles) {
		t.Fatalf("the runbooks are not those of the alerts:\n%v\n%v", titles, alerts)
	}
	var values map[string]any
	chart := framework.ModuleFile("artifacts", "chart", "local-service-controller", "values.yaml")
	if err := yaml.Unmarshal([]byte(readFile(t, chart)), &values); err != nil {
		t.Fatal(err)
	}
	for _, name := range alerts {
		checkRunbook(t, name, books[name], values)
	}
}

// checkRunbook tests one runbook, against the values of the chart.
func checkRunbook(t *testing.T, name string, book runbook, values map[string]any) {
	t.Helper()
	want := []string{"Meaning", "Look", "Fix"}
	got := []string{}
	for _, match := range part.FindAllStringSubmatch(block.ReplaceAllString(book.text, ""), -1) {
		got = append(got, match[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the parts %q, want %q", name, got, want)
	}
	if len(book.shell) == 0 {
		t.Errorf("%s has no command", name)
	}
	commands := slices.Clone(book.shell)
	for _, match := range code.FindAllStringSubmatch(block.ReplaceAllString(book.text, ""), -1) {
		span := match[1]
		if strings.HasPrefix(span, "kubectl ") {
			commands = append(commands, span)
		}
		for _, value := range chartValue.FindAllStringSubmatch(span, -1) {
			path := strings.Split(value[1], ".")
			_, has, _ := unstructured.NestedFieldNoCopy(values, path...)
			if _, isOurs := values[path[0]]; isOurs && !has {
				t.Errorf("%s: the chart has no value %s", name, value[1])
			}
		}
	}
	for _, command := range commands {
		if err := checkKubectl(t.Context(), command); err != nil {
			t.Errorf("%s: %s: %v", name, command, err)
		}
	}
}

var quoted = regexp.MustCompile(`'[^']*'`)

// checkKubectl returns nil if kubectl or the plugin has a command, and the command its flags: when they are asked for
// help, they do nothing else.
func checkKubectl(ctx context.Context, command string) error {
	command, _, _ = strings.Cut(quoted.ReplaceAllString(command, "x"), " | ")
	words := strings.Fields(command)
	if words[0] != "kubectl" || len(words) < 2 {
		return errors.New("it is not for kubectl")
	}
	if words[1] == "localservice" {
		_, _, err := framework.PluginProgram.Run(ctx, nil, nil, append(words[2:], "-h")...)
		return err
	}
	_, _, err := framework.PlaygroundProgram.Run(ctx, nil, nil, append(words, "--help")...)
	return err
}

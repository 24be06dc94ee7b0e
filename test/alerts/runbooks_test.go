package alerts

import (
	"context"
	"errors"
	"path/filepath"
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

func readRunbook(t testing.TB, alert string) runbook {
	t.Helper()
	book := runbook{text: readFile(t, framework.MustModuleFile(t, "docs", "runbooks", alert+".md"))}
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
	heading    = regexp.MustCompile(`(?m)^#+ .*$`)
	code       = regexp.MustCompile("`([^`\n]+)`")
	chartValue = regexp.MustCompile(`(?:^|[ =])([a-zA-Z]+(?:\.[a-zA-Z]+)+)`)
)

// TestRunbooks tests that there is a runbook for each alert, an alert for each runbook, that each has the same parts,
// and that what they name exists: commands and flags of kubectl, values of the chart. hack/verify-docs.sh looks at the
// rest.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	var alerts, books []string
	for _, rule := range readRules(t) {
		alerts = append(alerts, rule.Alert)
	}
	files, err := filepath.Glob(framework.MustModuleFile(t, "docs", "runbooks", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		books = append(books, strings.TrimSuffix(filepath.Base(file), ".md"))
	}
	slices.Sort(alerts)
	if !slices.Equal(alerts, books) {
		t.Fatalf("the runbooks are not those of the alerts:\n%v\n%v", books, alerts)
	}
	var values map[string]any
	chart := framework.MustModuleFile(t, "artifacts", "chart", "local-service-controller", "values.yaml")
	if err := yaml.Unmarshal([]byte(readFile(t, chart)), &values); err != nil {
		t.Fatal(err)
	}
	for _, name := range alerts {
		checkRunbook(t, name, values)
	}
}

// checkRunbook tests one runbook, against the values of the chart.
func checkRunbook(t *testing.T, name string, values map[string]any) {
	t.Helper()
	book := readRunbook(t, name)
	want := []string{"# " + name, "## Meaning", "## Impact", "## How to look", "## How to fix it"}
	if got := heading.FindAllString(block.ReplaceAllString(book.text, ""), -1); !slices.Equal(got, want) {
		t.Errorf("%s has the headings %q, want %q", name, got, want)
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

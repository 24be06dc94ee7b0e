package internal_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// remembering lists the packages whose types may keep something from one sync to the next, relative to the root.
var remembering = []string{".", "internal/cache", "internal/metrics", "internal/plan", "internal/reconcile",
	"internal/writer"}

// plumbing lists the fields that could remember something and do not, each with the reason. Add a field here only if it
// decides nothing after the call that filled it. Everything else belongs in the table of docs/design.md.
var plumbing = map[string]string{
	"internal/cache Pods.begun":            "closed once, when a LocalService first needs labels on pods",
	"internal/cache Store.watched":         "the informers, whose stores are the caches; fixed at the start",
	"internal/metrics readyReasons":        "a constant",
	"internal/plan Content.Annotations":    "part of one Service",
	"internal/plan Content.Labels":         "part of one Service",
	"internal/plan Input.Owned":            "part of one plan",
	"internal/plan Input.Ready":            "part of one plan",
	"internal/plan Names.Slices":           "part of one plan",
	"internal/plan Plan.Changes":           "the result of one plan",
	"internal/plan comparison.compared":    "part of one plan",
	"internal/reconcile Loop.running":      "set once, when Run begins",
	"internal/reconcile fairQueue.running": "part of Loop.queue: the keys that workers have",
	"internal/reconcile fairQueue.waiting": "part of Loop.queue: the keys that wait",
	"internal/plan Outcome.Made":           "the result of one sync",
	"internal/writer Pool.shared":          "counts the writes under way, and none that has ended",
}

// TestMemories compares the table of memories in docs/design.md with the code, so that the next memory is added on
// purpose, with the requirement that needs it and its bound.
func TestMemories(t *testing.T) {
	fields, isMemory := map[string]bool{}, map[string]bool{}
	for _, dir := range remembering {
		fieldsOf(t, dir, func(name string, remembers bool) {
			fields[name] = true
			isMemory[name] = isMemory[name] || remembers
		})
	}
	table := memoriesInDocs(t)
	for _, name := range slices.Sorted(maps.Keys(isMemory)) {
		if _, isPlumbing := plumbing[name]; isMemory[name] && !table[name] && !isPlumbing {
			t.Errorf("%s may remember something between syncs: look for a rule that needs no memory; if there is "+
				"none, add it to the table in docs/design.md", name)
		}
	}
	for name := range plumbing {
		if !isMemory[name] {
			t.Errorf("%s is listed as plumbing, but it is not a field that could remember something", name)
		}
		if table[name] {
			t.Errorf("%s is in the table of docs/design.md, and is listed as plumbing", name)
		}
	}
	for name := range table {
		if !fields[name] {
			t.Errorf("docs/design.md has the memory %s, which the code does not have", name)
		}
	}
}

// memoriesInDocs returns the fields in the table of docs/design.md.
func memoriesInDocs(t *testing.T) map[string]bool {
	text, err := os.ReadFile("../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Memories\n")
	if !found {
		t.Fatal("docs/design.md has no section Memories")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` in `([^`]+)` \\|([^|]+)\\|([^|]+)\\|([^|]+)\\|$")
	table := map[string]bool{}
	for _, match := range row.FindAllStringSubmatch(section, -1) {
		table[match[2]+" "+match[1]] = true
	}
	if rows := strings.Count(section, "\n|") - 2; rows != len(table) {
		t.Errorf("%d rows of the table in docs/design.md, of which %d can be read: each has a field, its requirement, "+
			"its bound, and what breaks without it", rows, len(table))
	}
	return table
}

var (
	declaration = regexp.MustCompile(`^(?:type (\w+)(?:\[.*\])? struct ?\{|var \($|var )(?:\s*(\w+) (.*))?$`)
	member      = regexp.MustCompile(`^\t(\w+)(?:, \w+)* +(.*)$`)
	// container matches the types, and the values of variables, that may remember something.
	container = regexp.MustCompile(`^(= make\()?[^(]*(\bmap\[|\bchan |\bsync\.Map\b|\batomic\.|LRU|Cache\b|RateLimiter)`)
)

// fieldsOf calls found with every field of the types of a package, and with its variables, each with whether its type
// may remember something. It reads the lines as gofmt writes them.
func fieldsOf(t *testing.T, dir string, found func(name string, remembers bool)) {
	files, err := filepath.Glob("../" + dir + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		isInside, isWhole, prefix := false, false, ""
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " //")
			if begins := declaration.FindStringSubmatch(line); begins != nil {
				isInside, isWhole, prefix = true, begins[2] != "", dir+" "+begins[1]
				if begins[1] != "" {
					prefix += "."
				}
				line = "\t" + begins[2] + " " + begins[3] // The only member of the declaration, if it has one line.
			}
			isInside = isInside && line != "}" && line != ")"
			if is := member.FindStringSubmatch(line); isInside && is != nil {
				found(prefix+is[1], container.MatchString(is[2]))
				isInside = !isWhole
			}
		}
	}
}

package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// remembering lists the packages whose types may keep something from one sync to the next, relative to the root.
var remembering = []string{".", "internal/cache", "internal/metrics", "internal/plan", "internal/status", "internal/reconcile",
	"internal/writer"}

// plumbing lists the fields that could remember something and do not, each with the reason. Add a field here only if it
// decides nothing after the call that filled it. Everything else belongs in the table of docs/design.md.
var plumbing = map[string]string{
	"internal/cache Pods.begun":            "closed once, when a LocalService first needs labels on pods",
	"internal/cache Store.watched":         "the informers, whose stores are the caches; fixed at the start",
	"internal/metrics readyReasons":        "a constant",
	"internal/plan Input.Owned":            "part of one plan",
	"internal/plan Input.PortNumbers":      "part of one plan",
	"internal/plan Input.Ready":            "part of one plan",
	"internal/plan Names.Rivals":           "part of one plan",
	"internal/plan Names.Slices":           "part of one plan",
	"internal/plan Names.hostnames":        "part of one plan",
	"internal/plan Plan.Changes":           "the result of one plan",
	"internal/plan Plan.PortNumbers":       "part of one plan",
	"internal/reconcile Loop.running":      "set once, when Run begins",
	"internal/reconcile fairQueue.running": "part of Loop.queue: the keys that workers have",
	"internal/reconcile fairQueue.waiting": "part of Loop.queue: the keys that wait",
	"internal/status Outcome.Made":         "the result of one sync",
	"internal/writer Pool.tokens":          "counts the writes under way, and none that has ended",
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

// fieldsOf calls found with every field of the types of a package, and with its variables, each with whether its type
// may remember something.
func fieldsOf(t *testing.T, dir string, found func(name string, remembers bool)) {
	var files []*ast.File
	entries, err := os.ReadDir("../" + dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), "../"+dir+"/"+name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	specs := specsOf(files)
	containers := map[string]bool{}               // the package's own names for maps and channels
	for before := -1; before < len(containers); { // Until no name for another name is found.
		before = len(containers)
		for _, spec := range specs {
			if spec, isType := spec.(*ast.TypeSpec); isType && remembers(spec.Type, containers) {
				containers[spec.Name.Name] = true
			}
		}
	}
	for _, spec := range specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if fields, isStruct := spec.Type.(*ast.StructType); isStruct {
				for _, field := range fields.Fields.List {
					for _, name := range field.Names {
						found(dir+" "+spec.Name.Name+"."+name.Name, remembers(field.Type, containers))
					}
				}
			}
		case *ast.ValueSpec:
			for i, name := range spec.Names {
				of := spec.Type
				if of == nil && i < len(spec.Values) {
					of = spec.Values[i]
				}
				found(dir+" "+name.Name, of != nil && remembers(of, containers))
			}
		}
	}
}

// specsOf returns the declarations of types and variables at the top of files.
func specsOf(files []*ast.File) (specs []ast.Spec) {
	for _, file := range files {
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.GenDecl); ok && (decl.Tok == token.TYPE || decl.Tok == token.VAR) {
				specs = append(specs, decl.Specs...)
			}
		}
	}
	return specs
}

// kinds are words in the names of types of other packages that remember something.
var kinds = regexp.MustCompile(`^(sync\.Map|atomic\..*|.*(semaphore\.|LRU|lru\.|Cache\b|RateLimiter|MutationCache).*)$`)

// remembers reports whether a type, or the value of a variable, may remember something.
func remembers(of ast.Expr, containers map[string]bool) bool {
	switch of := of.(type) {
	case *ast.MapType, *ast.ChanType:
		return true
	case *ast.StarExpr:
		return remembers(of.X, containers)
	case *ast.UnaryExpr:
		return remembers(of.X, containers)
	case *ast.ArrayType:
		return remembers(of.Elt, containers)
	case *ast.CompositeLit:
		return of.Type != nil && remembers(of.Type, containers)
	case *ast.CallExpr: // make(map[…]…)
		return len(of.Args) > 0 && types.ExprString(of.Fun) == "make" && remembers(of.Args[0], containers)
	case *ast.IndexExpr:
		return remembers(of.X, containers)
	case *ast.IndexListExpr:
		return remembers(of.X, containers)
	case *ast.Ident:
		return containers[of.Name]
	case *ast.SelectorExpr:
		return kinds.MatchString(types.ExprString(of))
	}
	return false
}

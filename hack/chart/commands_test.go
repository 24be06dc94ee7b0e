package chart

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
)

// sedCommand matches a command that a comment or a document tells users to type, without what reads its output. Those
// that begin with "$ " run in test/e2e.
var sedCommand = regexp.MustCompile(`(?m)^(?:#   |    )(sed (?:[^|\n\\]|\\\n)*)`)

// TestDocumentedSed: what comments and documents tell users to do with sed makes of the manifests what Helm makes of
// the values.
func TestDocumentedSed(t *testing.T) {
	const other = "{fullnameOverride: other, flags: {node-label-key: example.com/node}}"
	image := func(image string) func(t *testing.T, root, output string) {
		return func(t *testing.T, _, output string) {
			got := objects{}
			if err := decode(output, got); err != nil {
				t.Fatal(err)
			}
			repository, tag, _ := strings.Cut(image, ":")
			want := render(t, name, "image: {repository: "+repository+", tag: "+tag+"}")
			equal(t, find[*appsv1.Deployment](t, want).Spec.Template.Spec.Containers,
				find[*appsv1.Deployment](t, got).Spec.Template.Spec.Containers)
		}
	}
	checks := map[string]func(t *testing.T, root, output string){ // by the file that has the commands
		"artifacts/deploy/guard.yaml": func(t *testing.T, root, _ string) {
			want := renderIn(t, "tools", name, other)
			equal(t, policySpecs(t, want), policySpecs(t, decodeFiles(t, root+"/artifacts/deploy/guard.yaml")))
		},
		"artifacts/admission/kustomization.yaml": func(t *testing.T, root, _ string) {
			want := renderIn(t, "tools", name, "{guard: {enabled: false}, admission: {enabled: true}, "+other[1:])
			equal(t, policySpecs(t, want), policySpecs(t, build(t, root+"/artifacts/admission")))
		},
		"docs/install.md":    image("registry.example.com/local-service-controller:v0.1.0"),
		"docs/quickstart.md": image("registry.example.com/lsc:dev"),
	}
	commands := documentedSed(t)
	equal(t, slices.Sorted(maps.Keys(checks)), slices.Sorted(maps.Keys(commands)))
	for file, check := range checks {
		t.Run(file, func(t *testing.T) {
			root := t.TempDir()
			if err := os.CopyFS(root+"/artifacts", os.DirFS(artifacts)); err != nil {
				t.Fatal(err)
			}
			var output string
			for _, command := range commands[file] {
				command = strings.NewReplacer("NAMESPACE", "tools", "NAME", "other").Replace(command)
				bash := exec.CommandContext(t.Context(), "bash", "-c", command)
				bash.Dir = root
				if !strings.Contains(command, " artifacts/") {
					bash.Dir += "/" + filepath.Dir(file)
				}
				printed, err := bash.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", command, err, printed)
				}
				output += string(printed)
			}
			check(t, root, output)
		})
	}
}

// documentedSed returns the commands of all comments and documents, by the file. Templates are rendered into others.
func documentedSed(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	const root = "../.."
	for _, folder := range []string{"README.md", "artifacts", "docs"} {
		err := filepath.WalkDir(root+"/"+folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			file := must(filepath.Rel(root, path))
			for _, match := range sedCommand.FindAllStringSubmatch(string(must(os.ReadFile(path))), -1) {
				found[file] = append(found[file], match[1])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// policySpecs returns the specs of all policies, by the kind and the end of the name.
func policySpecs(t *testing.T, all objects) map[string]any {
	t.Helper()
	specs := map[string]any{}
	for _, object := range all {
		switch policy := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			specs[policy.Name[strings.LastIndex(policy.Name, "-"):]] = policy.Spec
		case *admissionv1.MutatingAdmissionPolicy:
			specs[policy.Name[strings.LastIndex(policy.Name, "-"):]] = policy.Spec
		}
	}
	if len(specs) < 3 {
		t.Errorf("there are only the policies %v", specs)
	}
	return specs
}

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const artifacts = "../../artifacts"

// TestGuardIsForTheController: whichever way the controller is installed, the guard judges the service account that it
// runs as, and knows its node label. A guard for another user would judge nobody. Otherwise it is the same each time:
// what a test of install.yaml shows about it is true of the others.
func TestGuardIsForTheController(t *testing.T) {
	ways := map[string]func(t *testing.T) objects{
		"install.yaml": func(t *testing.T) objects { return decodeFiles(t, artifacts+"/deploy/install.yaml") },
		"files": func(t *testing.T) objects {
			return decodeFiles(t, artifacts+"/deploy/guard.yaml", artifacts+"/deploy/local-service-controller.yaml")
		},
		"kustomize":                func(t *testing.T) objects { return build(t, artifacts+"/deploy") },
		"kustomize with admission": func(t *testing.T) objects { return build(t, artifacts+"/with-admission") },
		"kustomize with another namespace": func(t *testing.T) objects {
			folder := t.TempDir()
			relative := must(filepath.Rel(folder, must(filepath.Abs(artifacts+"/deploy"))))
			content := "resources: [" + relative + "]\nnamespace: tools\n" + documentedReplacement(t)
			if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			return build(t, folder)
		},
	}
	for what, values := range map[string]string{
		"": "", " with another name": "fullnameOverride: other",
		" with another label": "flags: {node-label-key: example.com/node}",
		" with namespaces":    "namespaces: [a, b]",
	} {
		ways["Helm"+what] = func(t *testing.T) objects { return render(t, name, values) }
	}
	installed := guardOf(t, decodeFiles(t, artifacts+"/deploy/install.yaml"))
	equal(t, 3, len(installed))
	for way, objectsOf := range ways {
		t.Run(way, func(t *testing.T) {
			all := objectsOf(t)
			deployment := find[*appsv1.Deployment](t, all)
			pod := deployment.Spec.Template.Spec
			user := "system:serviceaccount:" + deployment.Namespace + ":" + pod.ServiceAccountName
			key := "vm/rack"
			for _, arg := range pod.Containers[0].Args {
				if value, isKey := strings.CutPrefix(arg, "-node-label-key="); isKey {
					key = value
				}
			}
			ours := strings.NewReplacer("system:serviceaccount:"+namespace+":"+name, user, "vm/rack", key)
			want := map[string]string{}
			for policy, spec := range installed {
				want[policy] = ours.Replace(spec)
			}
			got := guardOf(t, all)
			equal(t, want, got)
			for policy, spec := range got {
				if !strings.Contains(spec, `"expression":"request.userInfo.username == '`+user+`'"`) {
					t.Errorf("%s does not judge %s:\n%s", policy, user, spec)
				}
			}
		})
	}
}

// guardOf returns the specs of the policies of the guard, without messages, by the ends of their names. Each must be in
// force: with a binding that denies.
func guardOf(t *testing.T, all objects) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range all {
		policy, isPolicy := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !isPolicy || !strings.Contains(policy.Name, "-guard-") {
			continue
		}
		for i := range policy.Spec.Validations {
			policy.Spec.Validations[i].Message = "" // The documented replacement leaves it as it is.
		}
		found[policy.Name[strings.LastIndex(policy.Name, "-"):]] = string(must(json.Marshal(policy.Spec)))
		equal(t, admissionv1.Fail, *policy.Spec.FailurePolicy)
		binding := find[*admissionv1.ValidatingAdmissionPolicyBinding](t,
			objects{"": all["ValidatingAdmissionPolicyBinding "+policy.Name]})
		equal(t, admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}, binding.Spec)
	}
	return found
}

// build returns what kustomize makes of a folder.
func build(t *testing.T, folder string) objects {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = kustomize.LoadRestrictionsNone
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	found := objects{}
	for _, resource := range resources.Resources() {
		if err := decode(string(must(resource.AsYAML())), found); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// documentedReplacement returns the lines that the comment in artifacts/deploy/kustomization.yaml tells users to add.
func documentedReplacement(t *testing.T) string {
	t.Helper()
	file := string(must(os.ReadFile(artifacts + "/deploy/kustomization.yaml")))
	lines := regexp.MustCompile(`(?m)^#   (.*\n)`).FindAllStringSubmatch(file, -1)
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line[1])
	}
	_, replacement, found := strings.Cut(text.String(), "replacements:\n")
	if !found {
		t.Fatalf("the comment has no replacement: %q", text.String())
	}
	return "replacements:\n" + replacement
}

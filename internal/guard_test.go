package internal

import (
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	policy "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// expression is a validation of a policy, or a variable.
type expression struct{ name, text string }

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

// TestGuardOnOldKubernetes: the guard uses nothing of CEL that is newer than the oldest version in
// docs/compatibility.md. An API server of 1.32 accepts what 1.31 has, because it may be downgraded.
func TestGuardOnOldKubernetes(t *testing.T) {
	manifest, err := os.ReadFile("../artifacts/deploy/guard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	old, policies := environment.MustBaseEnvSet(version.MajorMinor(1, 31)), 0
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		object := &admissionv1.ValidatingAdmissionPolicy{}
		if err := yaml.Unmarshal([]byte(document), object); err != nil {
			t.Fatal(err)
		}
		compiler, err := policy.NewCompositedCompiler(old)
		if err != nil {
			t.Fatal(err)
		}
		var results []policy.CompilationResult
		for _, v := range object.Spec.Variables {
			results = append(results, compiler.CompileAndStoreVariable(expression{v.Name, v.Expression},
				policy.OptionalVariableDeclarations{}, environment.NewExpressions))
		}
		for _, v := range object.Spec.Validations {
			policies++
			results = append(results, compiler.CompileCELExpression(expression{"", v.Expression},
				policy.OptionalVariableDeclarations{}, environment.NewExpressions))
		}
		for _, result := range results {
			if result.Error != nil {
				t.Errorf("%s: %v", object.Name, result.Error)
			}
		}
	}
	if policies != 3 {
		t.Errorf("there are %d policies, not 3", policies)
	}
}

package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// FuzzSelects: whatever nodeSelector and terms a LocalService has, it selects the nodes on which the scheduler places
// pods with the same ones.
func FuzzSelects(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	numbers := []string{"0", "1", "2", "007", "9223372036854775807"}
	values := append([]string{"", "a", "b", "a.b", "9223372036854775808"}, numbers...)
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		of := func(choices ...string) string { return choices[random.IntN(len(choices))] }
		key := func() string { return fmt.Sprint("k", random.IntN(3)) }
		valuesFor := func(operator corev1.NodeSelectorOperator) (some []string) {
			switch operator {
			case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
				for range 1 + random.IntN(2) {
					some = append(some, of(values...))
				}
			case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
				some = []string{of(numbers...)}
			}
			return some
		}
		ls := localService()
		if random.IntN(4) == 0 {
			ls.Spec.NodeSelector = map[string]string{key(): of(values...)}
		}
		for range random.IntN(4) {
			term := v1alpha1.NodeSelectorTerm{}
			for range random.IntN(3) {
				operator := corev1.NodeSelectorOperator(of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
				term.MatchExpressions = append(term.MatchExpressions, v1alpha1.NodeLabelRequirement{Key: key(),
					Operator: operator, Values: valuesFor(operator)})
			}
			for range random.IntN(2) {
				term.MatchFields = append(term.MatchFields, v1alpha1.NodeFieldRequirement{Key: "metadata.name",
					Operator: corev1.NodeSelectorOperator(of("In", "NotIn")), Values: []string{of("n", "m")}})
			}
			ls.Spec.NodeSelectorTerms = append(ls.Spec.NodeSelectorTerms, term)
		}
		if HasNodeSelector(ls) != (NodeSelection(ls) != "") {
			t.Errorf("%+v: %q", ls.Spec, NodeSelection(ls))
		}
		for range 5 {
			node := objects.Node("n")
			for range random.IntN(4) {
				node.Labels[key()] = of(values...)
			}
			want, err := objects.IsScheduled(ls, node)
			if err != nil {
				t.Fatalf("%s: %v", NodeSelection(ls), err)
			}
			if got := Selects(ls, node.Name, labels.Set(node.Labels)); got != want {
				t.Errorf("%s: node %s with %v is selected: %t, want %t", NodeSelection(ls), node.Name, node.Labels, got,
					want)
			}
		}
	})
}

// TestNodeSelection: messages say which nodes are selected, in one line.
func TestNodeSelection(t *testing.T) {
	ls := localService(selecting("disk=ssd", "arch=arm"))
	ls.Spec.NodeSelectorTerms = []v1alpha1.NodeSelectorTerm{
		{MatchExpressions: []v1alpha1.NodeLabelRequirement{{Key: "a", Operator: "In", Values: []string{"x", "y"}}}}}
	want := `spec.nodeSelector "arch=arm,disk=ssd" and spec.nodeSelectorTerms ` +
		`[{"matchExpressions":[{"key":"a","operator":"In","values":["x","y"]}]}]`
	if got := NodeSelection(ls); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

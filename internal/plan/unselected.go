package plan

import (
	"slices"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Unselected describes what a plan holds because no node is selected. Most likely that is a mistake, so no Service of
// an existing node is deleted. It depends on no flag and remembers nothing: the same caches give the same plan at the
// next sync, after a restart, and to the next leader.
type Unselected struct {
	// Held counts the Services that stay although no node wants them.
	Held int
}

// selectsNothing reports whether the LocalService chooses among the nodes, and selects none.
func (in *Input) selectsNothing() bool {
	return len(in.Nodes) == 0 && HasNodeSelector(in.localService())
}

// holdUnselected returns the remaining deletions in the plan of a LocalService that selects no node: those of
// Services whose node was deleted. They are made only if the node does not exist on the API server either.
func (in *Input) holdUnselected(deletions []Change) ([]Change, *Unselected) {
	held := &Unselected{}
	deletions = slices.DeleteFunc(deletions, func(change Change) bool {
		if node := change.Current.Node(); node != "" && !in.NodeExists(node) {
			return false
		}
		held.Held++
		return true
	})
	for i := range deletions {
		deletions[i].IfNodeGone = true
	}
	return deletions, held
}

// localService returns the LocalService that the plan is for.
func (in *Input) localService() *v1alpha1.LocalService { return in.Templates[0].owner }

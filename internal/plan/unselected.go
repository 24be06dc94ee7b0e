package plan

import (
	"slices"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Unselected describes what a plan keeps because no node is selected. Most likely that is a mistake, so nothing of a
// node that still exists is deleted. It depends on no flag and remembers nothing: the same caches give the same plan at
// the next sync, after a restart, and to the next leader.
type Unselected struct {
	// Kept is the number of Services that stay although they are not wanted.
	Kept int
}

// selectsNothing reports whether the LocalService chooses among the nodes, and selects none.
func (in *Input) selectsNothing() bool {
	return len(in.Nodes) == 0 && HasNodeSelector(in.localService())
}

// keepUnselected returns which deletions remain in the plan of a LocalService that selects no node: those of Services
// whose node is gone. These are deleted only if the API server does not have the node either.
func (in *Input) keepUnselected(deletions []Change) ([]Change, *Unselected) {
	kept := &Unselected{}
	deletions = slices.DeleteFunc(deletions, func(change Change) bool {
		if node := change.Current.Node(); node != "" && !in.NodeExists(node) {
			return false
		}
		kept.Kept++
		return true
	})
	for i := range deletions {
		deletions[i].IfNodeGone = true
	}
	return deletions, kept
}

// localService returns the LocalService that the plan is for.
func (in *Input) localService() *v1alpha1.LocalService { return in.Templates[0].owner }

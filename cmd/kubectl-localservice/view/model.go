// Package view serves a page that shows LocalServices by node: what there is as a matrix, and then what changes in it.
package view

import (
	"cmp"
	"maps"
	"slices"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Matrix is what the page shows. It does not change once it is published: another one takes its place.
type Matrix struct {
	Status
	// Columns are the LocalServices, by <namespace>/<name>.
	Columns map[string]*Column
}

// Column is a LocalService.
type Column struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Mode      v1alpha1.Mode `json:"mode"`
	// GroupBy is the node label whose values the rows are, instead of nodes; "" for nodes.
	GroupBy string `json:"groupBy,omitempty"`
	// Message says what concerns the LocalService as a whole.
	Message string `json:"message,omitempty"`
	// Cells are by row: the name of a node, or <label>=<value> for a group of nodes. In an update they are only those
	// that have changed, null for one that is gone.
	Cells map[string]*Cell `json:"cells"`
}

// Cell is what a LocalService is on a node, or in a group of nodes.
type Cell struct {
	State diagnose.State `json:"state"`
	// Ready and Total count endpoints.
	Ready int `json:"ready"`
	Total int `json:"total"`
	// Reason and Message say what is wrong, in a word and in words.
	Reason  diagnose.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Update is one event on the stream that the page reads.
type Update struct {
	// Reset is in the first update of a stream: what was heard before is to be forgotten.
	Reset *Scope `json:"reset,omitempty"`
	// Columns are those that are new or have changed.
	Columns []*Column `json:"columns,omitempty"`
	// Gone are the columns that are gone, by <namespace>/<name>.
	Gone []string `json:"gone,omitempty"`
	// Status is what has changed of the watch.
	Status *Status `json:"status,omitempty"`
}

// Scope is what is looked at.
type Scope struct {
	// Context is that of the kubeconfig.
	Context string `json:"context"`
	// Namespace is "" for all.
	Namespace string `json:"namespace"`
	// Name is that of the only LocalService to look at, "" for all.
	Name string `json:"name"`
	// Notice is for what the user may not see.
	Notice string `json:"notice,omitempty"`
}

// Status is how the watch does.
type Status struct {
	// Loaded is whether the cluster has been read.
	Loaded bool `json:"loaded"`
	// Problems say what keeps the page from hearing of changes.
	Problems []string `json:"problems"`
}

// NewColumn makes a column of what is known of a LocalService.
func NewColumn(list *diagnose.NodeList) *Column {
	c := &Column{Namespace: list.Namespace, Name: list.LocalService, Mode: list.Mode, GroupBy: list.GroupBy,
		Message: list.Message, Cells: make(map[string]*Cell, len(list.Items))}
	for i := range list.Items {
		n := &list.Items[i]
		c.Cells[Row(list, n)] = &Cell{State: n.State(), Ready: n.Endpoints.Ready, Total: n.Endpoints.Total,
			Reason: n.Reason, Message: n.Message}
	}
	return c
}

// Row is the row that an item of a list is in. No node has a name with a '='.
func Row(list *diagnose.NodeList, n *diagnose.Node) string {
	if list.GroupBy == "" || n.Hostname == "" {
		return n.Node
	}
	return list.GroupBy + "=" + n.Node
}

// Updates returns what has changed from one matrix to the next: an update for each column that has.
func Updates(before, now *Matrix) []Update {
	var updates []Update
	for _, key := range slices.Sorted(maps.Keys(before.Columns)) {
		if now.Columns[key] == nil {
			updates = append(updates, Update{Gone: []string{key}})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now.Columns)) {
		if change := changeOf(before.Columns[key], now.Columns[key]); change != nil {
			updates = append(updates, Update{Columns: []*Column{change}})
		}
	}
	if before.Loaded != now.Loaded || !slices.Equal(before.Problems, now.Problems) { // Last: now all is sent.
		updates = append(updates, Update{Status: &Status{now.Loaded, append([]string{}, now.Problems...)}})
	}
	return updates
}

// changeOf is a column with the cells that have changed, nil if nothing has.
func changeOf(before, now *Column) *Column {
	if before == now {
		return nil
	}
	if before == nil {
		return now
	}
	change := *now
	change.Cells = map[string]*Cell{}
	for row, cell := range now.Cells {
		if was := before.Cells[row]; was == nil || *was != *cell {
			change.Cells[row] = cell
		}
	}
	for row := range before.Cells {
		if now.Cells[row] == nil {
			change.Cells[row] = nil
		}
	}
	same := cmp.Or(cmp.Compare(before.Mode, now.Mode), cmp.Compare(before.GroupBy, now.GroupBy),
		cmp.Compare(before.Message, now.Message)) == 0
	if same && len(change.Cells) == 0 {
		return nil
	}
	return &change
}

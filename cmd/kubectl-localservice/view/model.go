// Package view serves a page that shows LocalServices by node: first the whole matrix, and then what changes in it.
package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Matrix holds what the page shows. It must not change once it is published: a new one replaces it.
type Matrix struct {
	Status
	// Columns are the LocalServices, by <namespace>/<name>.
	Columns map[string]*Column
	// Places are where the nodes are, by name; none where the user may not list nodes.
	Places map[string]*Place
}

// Place says where a node is, according to its labels.
type Place struct {
	Zone string `json:"zone,omitempty"`
	Pool string `json:"pool,omitempty"`
}

// poolLabels lists the labels that group similar nodes into pools, the most common first.
var poolLabels = []string{"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
	"kubernetes.azure.com/agentpool", "karpenter.sh/nodepool", "kops.k8s.io/instancegroup",
	"node.kubernetes.io/instance-type"}

// NewMatrix makes a matrix of what is known about LocalServices, and of the nodes that may be read.
func NewMatrix(status Status, lists []*diagnose.NodeList, nodes []*corev1.Node) *Matrix {
	m := &Matrix{Status: status, Columns: map[string]*Column{}, Places: map[string]*Place{}}
	for _, list := range lists {
		m.Columns[list.Key()] = NewColumn(list)
	}
	for _, node := range nodes {
		place := Place{Zone: node.Labels["topology.kubernetes.io/zone"]}
		for _, key := range poolLabels {
			place.Pool = cmp.Or(place.Pool, node.Labels[key])
		}
		if place != (Place{}) {
			m.Places[node.Name] = &place
		}
	}
	return m
}

// Column holds the state of a LocalService.
type Column struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Mode      v1alpha1.Mode `json:"mode"`
	GroupBy   string        `json:"groupBy,omitempty"` // the node label whose values are the rows; "" if nodes are
	diagnose.Summary
	// Notices are about the LocalService as a whole; the last one, about the controller, may be empty.
	Notices []diagnose.Notice `json:"notices"`
	// Cells are by row: the name of a node, or <label>=<value> for a group of nodes. In an update they are only those
	// that have changed, null for one that is gone.
	Cells map[string]*Cell `json:"cells"`
}

// Cell holds the state of a LocalService on a node, or in a group of nodes.
type Cell struct {
	diagnose.Finding
	diagnose.Endpoints
}

// Update holds one event of the stream that the page reads: what is new or has changed, null for what is gone.
type Update struct {
	Reset   *Scope             `json:"reset,omitempty"`   // in the first one: the page forgets what it received before
	Columns map[string]*Column `json:"columns,omitempty"` // by <namespace>/<name>
	Places  map[string]*Place  `json:"places,omitempty"`  // by node
	Status  *Status            `json:"status,omitempty"`
}

// Scope says what the page shows.
type Scope struct {
	Context   string   `json:"context"`          // of the kubeconfig
	Namespace string   `json:"namespace"`        // "" for all
	Name      string   `json:"name"`             // of the only LocalService to show, "" for all
	Flags     []string `json:"flags,omitempty"`  // that choose the cluster, for commands of kubectl
	Notice    string   `json:"notice,omitempty"` // what the user may not see
}

// Status says how the watch goes.
type Status struct {
	Loaded     bool     `json:"loaded"`               // The cluster has been read.
	Problems   []string `json:"problems"`             // what keeps the page from observing changes
	Controller string   `json:"controller,omitempty"` // that the controller does not seem to run
	Nothing    string   `json:"nothing,omitempty"`    // that there is no LocalService to show
}

// NewColumn makes a column from what is known about a LocalService.
func NewColumn(list *diagnose.NodeList) *Column {
	c := &Column{Namespace: list.Namespace, Name: list.LocalService, Mode: list.Mode, GroupBy: list.GroupBy,
		Summary: list.Summary, Cells: make(map[string]*Cell, len(list.Items)),
		Notices: append(slices.Clone(list.Notices), diagnose.Notice{Message: list.Controller})}
	for _, n := range list.Items {
		c.Cells[Row(list, n)] = &Cell{n.Finding, n.Endpoints}
	}
	return c
}

// Details holds everything that is known about one cell.
type Details struct {
	*diagnose.Node
	// Events are those of the pods, the Services and the LocalService.
	Events []corev1.Event `json:"events"`
	// EventsProblem says why there are no events to show.
	EventsProblem string `json:"eventsProblem,omitempty"`
}

// Row returns the row of an item of a list, of a group even if another one has its name. No node has a name with a '='.
func Row(list *diagnose.NodeList, n *diagnose.Node) string {
	if list.GroupBy == "" || n.Reason == diagnose.NodeWithoutName {
		return n.Node
	}
	return list.GroupBy + "=" + n.Node
}

// Updates returns what has changed from one matrix to the next: an update for each column that has changed.
func Updates(before, now *Matrix) []Update {
	var updates []Update
	for _, key := range sets.List(sets.KeySet(before.Columns).Union(sets.KeySet(now.Columns))) {
		if change, isChange := changeOf(before.Columns[key], now.Columns[key]); isChange {
			updates = append(updates, Update{Columns: map[string]*Column{key: change}})
		}
	}
	if places := changed(before.Places, now.Places); len(places) > 0 {
		updates = append(updates, Update{Places: places})
	}
	if !apiequality.Semantic.DeepEqual(before.Status, now.Status) { // Last: now all is sent.
		status := now.Status
		status.Problems = append([]string{}, now.Problems...) // [] in JSON, not null
		updates = append(updates, Update{Status: &status})
	}
	return updates
}

// changed returns the values that are new or differ from those before, and nil for the keys that are gone.
func changed[T comparable](before, now map[string]*T) map[string]*T {
	changes := map[string]*T{}
	for key, value := range now {
		if was := before[key]; was == nil || *was != *value {
			changes[key] = value
		}
	}
	for key := range before {
		if now[key] == nil {
			changes[key] = nil
		}
	}
	return changes
}

// changeOf returns a column with the cells that have changed, nil for one that is gone.
func changeOf(before, now *Column) (change *Column, isChange bool) {
	if before == nil || now == nil {
		return now, before != now
	}
	was, out := *before, *now
	out.Cells = changed(before.Cells, now.Cells)
	was.Cells = out.Cells
	return &out, !apiequality.Semantic.DeepEqual(was, out) || len(out.Cells) > 0
}

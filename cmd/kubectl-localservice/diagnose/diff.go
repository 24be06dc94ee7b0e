package diagnose

import "reflect"

// Changes returns the items of a list that differ from those in the list before, which may be nil. Names that are gone
// come last, as items with the reason NameGone.
func Changes(before, now *NodeList) []Node {
	if before == nil {
		return now.Items
	}
	type id struct{ node, hostname string }
	were := map[id]*Node{}
	for i := range before.Items {
		were[id{before.Items[i].Node, before.Items[i].Hostname}] = &before.Items[i]
	}
	var changes []Node
	for i := range now.Items {
		n := &now.Items[i]
		was := were[id{n.Node, n.Hostname}]
		delete(were, id{n.Node, n.Hostname})
		if was == nil || !reflect.DeepEqual(was, n) {
			changes = append(changes, *n)
		}
	}
	for i := range before.Items {
		if n := before.Items[i]; were[id{n.Node, n.Hostname}] != nil {
			gone := newNode(n.Node, n.Hostname)
			gone.Service, gone.DNSName, gone.Reason = n.Service, n.DNSName, NameGone
			gone.Message = "gone: the LocalService does not give this name any more"
			changes = append(changes, gone)
		}
	}
	return changes
}

package diagnose

// State is how a name does, at a glance.
type State string

const (
	// Ready: all is well.
	Ready State = "Ready"
	// Degraded: it is answered, and yet not all is well.
	Degraded State = "Degraded"
	// Down: nothing answers, although something should.
	Down State = "Down"
	// Empty: nothing answers, and nothing should, because there is no pod that could, or no name.
	Empty State = "Empty"
)

// State sums up the reason and the endpoints.
func (n *Node) State() State {
	switch {
	case n.Reason == "":
		return Ready
	case n.Endpoints.Ready > 0:
		return Degraded
	case n.Reason == NoPods, n.Reason == PodsCompleted, n.Reason == NodeWithoutName, n.Reason == NameGone:
		return Empty
	}
	return Down
}

package plan

import "slices"

// withheld returns the nodes that lack a label for which a variable stands, with the label.
func (t *Template) withheld(nodes []string) map[string]string {
	if len(t.labelVariables) == 0 {
		return nil
	}
	withheld := map[string]string{}
	for _, node := range nodes {
		label := firstMissing(t.labelVariables, func(key string) (string, bool) { return t.nodeLabels(node, key) })
		if label != "" {
			withheld[node] = label
		}
	}
	return withheld
}

// withhold reports the nodes whose Services are not written. A Service that such a node has stays as it is, and so does
// its share in the numbers. One of another node, which is gone, is not wanted.
func (p *Plan) withhold(in *Input, withheld map[string]string) {
	for node, label := range withheld {
		name := in.Templates[0].name(node)
		current := in.Owned[name]
		if isOf(current, node) && in.Ready[name] {
			p.Ready++
		}
		p.Changes[Withhold] = append(p.Changes[Withhold], Change{Action: Withhold, Template: in.Templates[0], Name: name,
			Node: node, Current: current, Label: label})
	}
}

// isOf reports whether a Service, nil for none, is that of a node, as far as it says.
func isOf(service Service, node string) bool {
	return service != nil && (service.Node() == node || service.Node() == "")
}

func without(nodes []string, some map[string]string) []string {
	if len(some) == 0 {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return some[node] != "" })
}

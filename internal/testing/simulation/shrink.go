package simulation

import (
	"slices"
	"strings"
)

// Shrink shortens a history that has failed, and returns the shortest that it finds which still fails in the same way.
// It plays no more than most histories.
func Shrink(h *History, failure *Failure, most int, play func(*History) *Failure) (*History, *Failure) {
	try := func(simplify func(*History)) {
		smaller := *h
		smaller.Steps = slices.Clone(h.Steps)
		if simplify(&smaller); most <= 0 || smaller.String() == h.String() {
			return
		}
		most--
		if f := play(&smaller); f != nil && f.Kind == failure.Kind {
			h, failure = &smaller, f
		}
	}
	for count := -1; count != len(h.Steps); { // First many steps at a time, and then one by one, from the end.
		count = len(h.Steps)
		for size := count; size > 0; size /= 2 {
			for end := len(h.Steps); end > 0; end -= size {
				try(func(s *History) { s.Steps = slices.Delete(s.Steps, max(end-size, 0), end) })
			}
		}
	}
	for _, simplify := range simpler {
		try(simplify)
	}
	for i := range h.Steps {
		for _, simplify := range simplerSteps {
			try(func(s *History) { simplify(&s.Steps[i]) })
		}
	}
	return h, failure
}

// simpler are ways to make a history simpler, other than its steps.
var simpler = []func(*History){
	func(h *History) { h.Replicas = 1 },
	func(h *History) { h.Distance = 0 },
	func(h *History) { h.Addresses = plenty },
	func(h *History) { h.Nodes = 1 },
	func(h *History) { h.Nodes = 0 },
}

// simplerSteps are ways to make a step simpler.
var simplerSteps = []func(*Step){
	func(s *Step) { s.After = 0 },
	func(s *Step) { s.How = s.How[strings.Index(s.How, ",")+1:] },
	func(s *Step) { s.How, _, _ = strings.Cut(s.How, ",") },
}

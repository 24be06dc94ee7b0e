package simulation

import (
	"slices"
	"strings"
)

// Shrink shortens a history that has failed, and returns the shortest that it finds which still fails in the same way.
// It plays no more than most histories.
func Shrink(h *History, failure *Failure, most int, play func(*History) *Failure) (*History, *Failure) {
	try := func(smaller *History) bool {
		if most--; most < 0 {
			return false
		}
		if f := play(smaller); f != nil && f.Kind == failure.Kind {
			h, failure = smaller, f
			return true
		}
		return false
	}
	for count := -1; count != len(h.Steps) && most > 0; {
		count = len(h.Steps)
		shorten(func() *History { return h }, try)
	}
	for _, simplify := range simpler {
		smaller := h.clone()
		if simplify(smaller); smaller.String() != h.String() {
			try(smaller)
		}
	}
	for i := range h.Steps {
		for _, simplify := range simplerSteps {
			smaller := h.clone()
			if simplify(&smaller.Steps[i]); smaller.Steps[i] != h.Steps[i] {
				try(smaller)
			}
		}
	}
	return h, failure
}

// shorten leaves out steps: first many at a time, and then one by one, from the end.
func shorten(current func() *History, try func(*History) bool) {
	for size := len(current().Steps); size > 0; size /= 2 {
		for end := len(current().Steps); end > 0; end -= size {
			smaller := current().clone()
			smaller.Steps = slices.Delete(smaller.Steps, max(end-size, 0), end)
			if len(smaller.Steps) > 0 {
				try(smaller)
			}
		}
	}
}

func (h *History) clone() *History {
	out := *h
	out.Steps = slices.Clone(h.Steps)
	return &out
}

// simpler are ways to make a history simpler, other than its steps.
var simpler = []func(*History){
	func(h *History) { h.Replicas = 1 },
	func(h *History) { h.Streamed = true },
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

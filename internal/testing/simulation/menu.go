package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// menu chooses what can happen in one history. Half of the histories leave out about half of everything, or three
// quarters: actions, faults, delays, and the nodes, names and specs that they are about. A failure that takes a certain
// sequence is found much sooner if few other things happen. 0 leaves nothing out.
type menu uint64

// has reports whether a value for a purpose is on the menu.
func (m menu) has(purpose string, value any) bool {
	return m == 0 || rand.NewPCG(uint64(m), hash(purpose, fmt.Sprint(value))).Uint64()%(2+2*uint64(m%2)) == 0
}

// offered returns the values that are on the menu, but at least one.
func offered[T any](m menu, purpose string, values []T) []T {
	out := slices.DeleteFunc(slices.Clone(values), func(value T) bool { return !m.has(purpose, value) })
	if len(out) == 0 {
		return values[:1]
	}
	return out
}

// drawing draws what happens in a history, from its menu.
type drawing struct {
	*rand.Rand
	menu menu
}

// of draws one of the values for a purpose that are on the menu.
func (d *drawing) of(purpose string, values ...string) string {
	return pick(d, offered(d.menu, purpose, values)...)
}

// pick draws one of some values, the first ones more often: what a few objects have in common goes wrong more often.
func pick[T any](d *drawing, values ...T) T { return values[d.IntN(1+d.IntN(len(values)))] }

// oneOf reports true once in n times.
func (d *drawing) oneOf(n int) bool { return d.IntN(n) == 0 }

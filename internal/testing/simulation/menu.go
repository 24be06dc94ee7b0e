package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"
)

// menu chooses what can happen in one history. Half of the histories leave out about half of everything, or three
// quarters: actions, faults, delays, and the nodes, names and specs that they are about. A failure that takes a certain
// sequence is found much sooner if few other things happen. 0 leaves nothing out.
type menu uint64

func drawMenu(t *rapid.T) menu {
	if !rapid.Bool().Draw(t, "choosy") {
		return 0
	}
	return menu(rapid.Uint64Min(1).Draw(t, "menu"))
}

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
	*rapid.T
	menu menu
}

func (d *drawing) of(purpose string, values ...string) string {
	return rapid.SampledFrom(offered(d.menu, purpose, values)).Draw(d.T, purpose)
}

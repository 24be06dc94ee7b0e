package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"
)

// menu chooses what can happen in one history. In half of the histories about half of everything is left out, or three
// quarters: actions, faults, delays, and the nodes, names and specs that they are about. What takes a few certain
// things in a row is found much sooner where few other things happen. 0 leaves nothing out.
type menu uint64

func drawMenu(t *rapid.T) menu {
	if !rapid.Bool().Draw(t, "choosy") {
		return 0
	}
	return menu(rapid.Uint64Min(1).Draw(t, "menu"))
}

// has reports whether a value is on the menu, among those for one purpose.
func (m menu) has(purpose string, value any) bool {
	return m == 0 || rand.NewPCG(uint64(m), hash(purpose, fmt.Sprint(value))).Uint64()%(2+2*uint64(m%2)) == 0
}

// offered returns those of the values that are on the menu, but one at least.
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

package diagnose

import (
	"cmp"
	"strings"
)

// Natural compares names as people order them: node-2 comes before node-10.
func Natural(a, b string) int {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		m, n := digits(a[i:]), digits(b[j:])
		if m == 0 || n == 0 {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		x, y := strings.TrimLeft(a[i:i+m], "0"), strings.TrimLeft(b[j:j+n], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
		i, j = i+m, j+n
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // One begins with the other, apart from zeros.
}

// digits returns how many digits a text begins with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

package plan

import (
	"maps"
	"testing"
)

func TestLabelString(t *testing.T) {
	for _, set := range []map[string]string{
		{}, {"a": "1"}, {"empty": ""}, {"example.org/role": "x.y_z-1", "b": "", "a": "2"},
	} {
		l := LabelStringOf(set)
		for _, key := range []string{"a", "b", "empty", "example.org/role", "role", "", "1"} {
			want, exists := set[key]
			if got, found := l.Lookup(key); got != want || found != exists {
				t.Errorf("%q has %q = %q, %v; want %q, %v", l, key, got, found, want, exists)
			}
		}
		if again := LabelStringOf(maps.Clone(set)); again != l {
			t.Errorf("%q and %q for the same labels", l, again)
		}
	}
}

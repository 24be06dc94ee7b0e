package cache

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestLabels(t *testing.T) {
	for _, set := range []map[string]string{
		{}, {"a": "1"}, {"empty": ""}, {"example.org/role": "x.y_z-1", "b": "", "a": "2"},
	} {
		l := labelsOf(set)
		for _, key := range []string{"a", "b", "empty", "example.org/role", "role", "", "1"} {
			want, exists := set[key]
			if got, found := l.Lookup(key); got != want || found != exists {
				t.Errorf("%q has %q = %q, %v; want %q, %v", l, key, got, found, want, exists)
			}
		}
		if again := labelsOf(maps.Clone(set)); again != l {
			t.Errorf("%q and %q for the same labels", l, again)
		}
	}
}

// TestIdentity: caches accept an object that has only an identity, and find it under the key of the whole object.
func TestIdentity(t *testing.T) {
	for _, meta := range []*metav1.ObjectMeta{{Name: "a", ResourceVersion: "1"},
		{Namespace: "n", Name: "a", ResourceVersion: "2"}} {
		want, err := cache.MetaNamespaceKeyFunc(meta)
		if err != nil {
			t.Fatal(err)
		}
		id := identityOf(meta)
		if got, err := cache.MetaNamespaceKeyFunc(&id); err != nil || got != want {
			t.Errorf("key %q, %v, want %q", got, err, want)
		}
		if got := id.GetObjectMeta().GetResourceVersion(); got != meta.ResourceVersion ||
			id.GetResourceVersion() != got {
			t.Errorf("resource version %q, want %q", got, meta.ResourceVersion)
		}
	}
}

package cache

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestOwned: a LocalService owns the Services of its namespace that have its UID in their controller reference,
// whatever their names, and as the cache has them now.
func TestOwned(t *testing.T) {
	c := newCaches(t)
	of := func(uid types.UID, namespace, node string) *corev1.Service {
		templates, err := plan.NewTemplates(objects.LocalService(func(ls *v1alpha1.LocalService) {
			ls.UID, ls.Namespace = uid, namespace
		}), nodeLabelKey, nil)
		if err != nil {
			t.Fatal(err)
		}
		return templates[0].Service(node)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		owned := c.Owned(objects.LocalService())
		for name, service := range owned {
			if name != service.GetName() || service.GetNamespace() != "default" {
				t.Errorf("%s: %s/%s under the name %s", when, service.GetNamespace(), service.GetName(), name)
			}
		}
		if got := slices.Sorted(maps.Keys(owned)); !slices.Equal(got, want) {
			t.Errorf("%s: owned %v, want %v", when, got, want)
		}
	}
	expect("empty")
	show(t, c.Services, of("uid-demo", "default", "a"), of("uid-demo", "default", "b"),
		of("uid-demo", "other", "c"), of("earlier", "default", "d"),
		objects.ForeignService("demo-e"))
	expect("several LocalServices", "demo-a", "demo-b")
	show(t, c.Services, of("another", "default", "a"), of("uid-demo", "default", "d"))
	expect("two have another controller", "demo-b", "demo-d")
	hide(t, c.Services, of("uid-demo", "default", "b"))
	expect("one is deleted", "demo-d")
}

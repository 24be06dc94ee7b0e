package cache

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// TestReadLocalService: a spec that does not fit the type is dropped and reported. It is not an error, because then no
// LocalService could be read.
func TestReadLocalService(t *testing.T) {
	ports := func(field string, value any) map[string]any {
		return map[string]any{"selector": map[string]any{"app": "demo"},
			"ports": []any{map[string]any{"port": int64(80), field: value}}}
	}
	good := map[string]any{"nodes": int64(3)}
	for name, c := range map[string]struct {
		spec, status any
		says         string // why the spec cannot be decoded, "" if it can
		nodes        int32  // of the status
	}{
		"fits":                      {ports("targetPort", "http"), good, "", 3},
		"unknown field":             {ports("unknown", "x"), good, "", 3},
		"targetPort beyond int32":   {ports("targetPort", int64(1)<<32), good, "4294967296", 3},
		"targetPort with a comma":   {ports("targetPort", 80.5), good, "80.5", 3},
		"port that is a string":     {ports("port", "http"), good, "spec.ports.port", 3},
		"port beyond int32":         {ports("port", int64(1)<<32+80), good, "spec.ports.port", 3},
		"spec that is a list":       {[]any{"x"}, good, "array", 3},
		"status does not fit":       {ports("targetPort", "http"), map[string]any{"nodes": "many"}, "", 0},
		"neither spec nor status":   {ports("targetPort", int64(1)<<32), []any{"x"}, "4294967296", 0},
		"no spec, as in an old CRD": {nil, good, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			stored := &unstructured.Unstructured{Object: map[string]any{"spec": c.spec, "status": c.status}}
			stored.SetName("demo")
			stored.SetNamespace("default")
			stored.SetGeneration(7)
			stored.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}})
			ls, err := readLocalService(stored)
			if err != nil {
				t.Fatal(err)
			}
			isBad := c.says != ""
			_, problem := plan.NewTemplates(ls, nodeLabelKey, nil)
			isUnreadable := problem != nil && strings.Contains(problem.Error(), "cannot be read")
			if isUnreadable != isBad || isBad && !strings.Contains(problem.Error(), c.says) {
				t.Errorf("unreadable: %t, %v", isUnreadable, problem)
			}
			want := metav1.ObjectMeta{Name: "demo", Namespace: "default", Generation: 7, Annotations: ls.Annotations}
			if diff := cmp.Diff(want, ls.ObjectMeta) + cmp.Diff(c.nodes, ls.Status.Nodes); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

package cache

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// LocalServiceResource identifies LocalServices for clients that do not know their type.
var LocalServiceResource = v1alpha1.SchemeGroupVersion.WithResource("localservices")

// resyncPeriod is the time after which all LocalServices are reported as changed, so that everything is compared again.
const resyncPeriod = 10 * time.Hour

// readLocalService decodes a stored LocalService. A spec or status that does not fit the type is dropped. An unreadable
// spec is marked.
func readLocalService(stored *unstructured.Unstructured) (*v1alpha1.LocalService, error) {
	var problem error
	for _, without := range [][]string{nil, {"status"}, {"spec"}, {"spec", "status"}} {
		fields := maps.Clone(stored.Object)
		for _, name := range without {
			delete(fields, name)
		}
		ls, err := decode(fields)
		if err == nil {
			ls.ManagedFields = nil
			if slices.Contains(without, "spec") {
				plan.MarkUnreadable(ls, problem)
			}
			return ls, nil
		}
		problem = cmp.Or(problem, err)
	}
	return nil, problem
}

// decode decodes as a typed client would. The converter truncates numbers that do not fit, and its errors name no
// field.
func decode(fields map[string]any) (*v1alpha1.LocalService, error) {
	encoded, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	ls := &v1alpha1.LocalService{}
	return ls, json.Unmarshal(encoded, ls)
}

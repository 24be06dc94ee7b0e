package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Fields of a LocalService that a Service does not have, and fields of a Service that a LocalService ignores on
// purpose.
var (
	onlyOfLocalServices = []string{"groupBy", "mode", "nodeSelector", "nodeSelectorTerms", "serviceMetadata"}
	onlyOfServices      = []string{
		"clusterIPs", "healthCheckNodePort", // allocated by the API server
		"externalName",                  // cannot name anything on a node
		"externalIPs", "loadBalancerIP", // CVE-2020-8554
	}
)

// TestEveryFieldIsInTheTable: the table has the fields of the API, and no others. An update to a newer API of Services
// fails this test if it adds fields.
func TestEveryFieldIsInTheTable(t *testing.T) {
	var inTable []string
	for _, f := range fields {
		inTable = append(inTable, f.name)
	}
	slices.Sort(inTable)
	for _, c := range []struct {
		of     reflect.Type
		others []string
	}{{reflect.TypeFor[v1alpha1.LocalServiceSpec](), onlyOfLocalServices},
		{reflect.TypeFor[corev1.ServiceSpec](), onlyOfServices}} {
		var want []string
		for _, name := range jsonNames(c.of) {
			if !slices.Contains(c.others, name) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if !slices.Equal(inTable, want) {
			t.Errorf("the fields in the table and those of %s differ:\n%v\n%v", c.of, inTable, want)
		}
	}
}

// TestEveryFieldIsTried: the specs of the tests use every field, so the tests of transitions, drift and the cache cover
// all of them.
func TestEveryFieldIsTried(t *testing.T) {
	used := map[string]bool{}
	for _, name := range specNames() {
		spec := reflect.ValueOf(localService(specs[name]).Spec)
		for i, field := range jsonNames(spec.Type()) {
			used[field] = used[field] || !spec.Field(i).IsZero()
		}
	}
	for _, field := range jsonNames(reflect.TypeFor[v1alpha1.LocalServiceSpec]()) {
		if !used[field] && !slices.Contains([]string{"groupBy", "mode", "nodeSelector", "nodeSelectorTerms"}, field) {
			t.Errorf("no spec uses %s", field)
		}
	}
}

func jsonNames(of reflect.Type) []string {
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Fields of a LocalService that are none of a Service, and fields of a Service that a LocalService leaves alone on
// purpose.
var (
	onlyOfLocalServices = []string{"groupBy", "mode", "nodeSelector", "serviceMetadata"}
	onlyOfServices      = []string{
		"clusterIPs", "healthCheckNodePort", // allocated by the API server
		"externalName",                  // names nothing on a node
		"externalIPs", "loadBalancerIP", // CVE-2020-8554
	}
)

// TestEveryFieldIsInTheTable: a field that the API has is in the table, and the other way round; and whoever moves to
// a newer API of Services is told of its new fields.
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

// TestEveryFieldIsTried: the specs of the tests use every field, so that the tests of transitions, drift and the cache
// do.
func TestEveryFieldIsTried(t *testing.T) {
	used := map[string]bool{}
	for _, name := range specNames() {
		spec := reflect.ValueOf(localService(specs[name]).Spec)
		for i, field := range jsonNames(spec.Type()) {
			used[field] = used[field] || !spec.Field(i).IsZero()
		}
	}
	for _, field := range jsonNames(reflect.TypeFor[v1alpha1.LocalServiceSpec]()) {
		if !used[field] && !slices.Contains([]string{"groupBy", "mode", "nodeSelector"}, field) {
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

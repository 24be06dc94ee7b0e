package status

import (
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

func TestCapacityCondition(t *testing.T) {
	for name, c := range map[string]struct {
		capacity plan.Capacity
		want     string
		says     string
	}{
		"little": {plan.Capacity{InCluster: 10, InNamespace: 5},
			"False EnoughCapacity", ""},
		"just enough": {plan.Capacity{InCluster: 10000, InNamespace: 5000, ClusterIPsInNamespace: 1000},
			"False EnoughCapacity", ""},
		"full cluster": {plan.Capacity{InCluster: 10001, InNamespace: 5},
			"True ManyServices", "the cluster have more than 10000"},
		"full namespace": {plan.Capacity{InCluster: 5001, InNamespace: 5001},
			"True ManyServices", "this namespace have more than 5000"},
		"environment variables": {plan.Capacity{ClusterIPsInNamespace: 1001},
			"True ManyEnvironmentVariables", "more than 1000 Services with a cluster IP"},
	} {
		t.Run(name, func(t *testing.T) {
			got := nearCapacity(&c.capacity)
			if string(got.Status)+" "+got.Reason != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("got %s %s: %s, want %s about %q", got.Status, got.Reason, got.Message, c.want, c.says)
			}
		})
	}
}

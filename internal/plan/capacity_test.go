package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func TestDeletionOfMost(t *testing.T) {
	for _, c := range []struct {
		deletes, owned int
		want           bool
	}{{0, 0, false}, {1, 1, false}, {1, 5, false}, {2, 4, false}, {2, 3, true}, {2, 2, true}, {300, 300, true}} {
		plan := Plan{Owned: c.owned}
		for range c.deletes {
			plan.Changes = append(plan.Changes, Change{Action: Delete})
		}
		if got := plan.IsMassDeletion(); got != c.want {
			t.Errorf("%d of %d: %v, want %v", c.deletes, c.owned, got, c.want)
		}
	}
}

// TestServicesAreCounted: Services are counted if their number changes, or unless the status reports that number and
// enough capacity.
func TestServicesAreCounted(t *testing.T) {
	enough := []metav1.Condition{{Type: v1alpha1.ConditionNearCapacity, Status: metav1.ConditionFalse}}
	for name, c := range map[string]struct {
		nodes  []string
		status v1alpha1.LocalServiceStatus
		want   *Capacity
	}{
		"at rest": {[]string{"node1"}, v1alpha1.LocalServiceStatus{Services: 1, Conditions: enough}, nil},
		"one to be created": {[]string{"node1", "node2"}, v1alpha1.LocalServiceStatus{Services: 1, Conditions: enough},
			&Capacity{InCluster: 8}},
		"status was refused": {[]string{"node1"}, v1alpha1.LocalServiceStatus{Conditions: enough},
			&Capacity{InCluster: 7}},
		"many before": {[]string{"node1"}, v1alpha1.LocalServiceStatus{Services: 1, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionNearCapacity, Status: metav1.ConditionTrue}}}, &Capacity{InCluster: 7}},
		"no status": {[]string{"node1"}, v1alpha1.LocalServiceStatus{Services: 1}, &Capacity{InCluster: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, localService(func(ls *v1alpha1.LocalService) { ls.Status = c.status }))
			in := newCluster(stored(tmpl.Service("node1"))).input(tmpl, c.nodes...)
			in.Capacity = func(more int) Capacity { return Capacity{InCluster: 7 + more} }
			if diff := cmp.Diff(c.want, Compute(in).Capacity); diff != "" {
				t.Errorf("wrong capacity (-want +got):\n%s", diff)
			}
		})
	}
}

package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestCapacityCounts: the Services of a LocalService count as they will be, and those of others as their status has
// them. Those with a cluster IP are counted if the LocalService has some, too.
func TestCapacityCounts(t *testing.T) {
	with := func(uid, namespace, clusterIP string, mode v1alpha1.Mode, nodes, services int32) *v1alpha1.LocalService {
		return localService(func(ls *v1alpha1.LocalService) {
			ls.UID, ls.Namespace, ls.Spec.ClusterIP, ls.Spec.Mode = types.UID(uid), namespace, clusterIP, mode
			ls.Status.Nodes, ls.Status.Services = nodes, services
		})
	}
	headless := with("headless", "default", corev1.ClusterIPNone, "", 10, 10)
	addressed := with("addressed", "default", "", "", 200, 0) // Its Services are being created.
	hostnames := with("hostnames", "default", "", v1alpha1.ModeHostnames, 100, 2)
	elsewhere := with("elsewhere", "other", "", "", 0, 3000) // Its Services are kept, although it selects no node.
	all := slices.Values([]*v1alpha1.LocalService{headless, addressed, hostnames, elsewhere})
	for name, c := range map[string]struct {
		ls    *v1alpha1.LocalService
		nodes []string
		want  Capacity
	}{
		"headless, as before":     {headless, []string{"a"}, Capacity{InCluster: 3203, InNamespace: 203}},
		"headless, two new nodes": {headless, []string{"a", "b", "c"}, Capacity{InCluster: 3205, InNamespace: 205}},
		"an orphan is adopted":    {headless, []string{"a", "orphan"}, Capacity{InCluster: 3204, InNamespace: 204}},
		"no node that is left":    {headless, []string{"b"}, Capacity{InCluster: 3203, InNamespace: 203}},
		"with cluster IPs": {addressed, []string{"a", "b"}, Capacity{InCluster: 3014, InNamespace: 14,
			ClusterIPsInNamespace: 2}},
		"elsewhere": {elsewhere, []string{"a"}, Capacity{InCluster: 213, InNamespace: 1, ClusterIPsInNamespace: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl := template(t, c.ls)
			orphan := stored(tmpl.Service("orphan"))
			orphan.OwnerReferences = nil
			in := newCluster(stored(tmpl.Service("a")), orphan).input(tmpl, c.nodes...)
			in.LocalServices = all
			if diff := cmp.Diff(c.want, Compute(in).Capacity); diff != "" {
				t.Errorf("wrong capacity (-want +got):\n%s", diff)
			}
		})
	}
}

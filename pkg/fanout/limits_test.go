package fanout

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// limitsCase is what becomes of a plan that creates two Services, deletes two and updates one.
type limitsCase struct {
	limits       Limits
	owned, total int
	allowed      bool
	want         []string
	reason, says string
}

var everything = []string{"Create a", "Create b", "Delete c", "Delete d", "Update e"}

func (c *limitsCase) check(t *testing.T) {
	plan := Plan{InPlace: 1, Changes: []Change{{Action: Create, Name: "a"}, {Action: Create, Name: "b"},
		{Action: Delete, Name: "c"}, {Action: Delete, Name: "d"}, {Action: Update, Name: "e"}}}
	ls := localService()
	if c.allowed {
		ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
	}
	got, held := c.limits.Apply(plan, ls, c.owned, c.total)
	if diff := cmp.Diff(c.want, actions(got)); diff != "" || got.InPlace != 1 {
		t.Errorf("%d in place; changes (-want +got):\n%s", got.InPlace, diff)
	}
	if reason, message := held.reason(); reason != c.reason || !strings.Contains(message, c.says) {
		t.Errorf("%s: %s, want %s about %q", reason, message, c.reason, c.says)
	}
	if diff := cmp.Diff(everything, actions(plan)); diff != "" {
		t.Errorf("the plan was changed:\n%s", diff)
	}
}

// TestDeletionLimits: what -max-delete-fraction lets one plan delete.
func TestDeletionLimits(t *testing.T) {
	for name, c := range map[string]limitsCase{
		"no limits":                     {Limits{MaxDeleteFraction: 1}, 2, 9999, false, everything, "", ""},
		"half may go, and half goes":    {Limits{MaxDeleteFraction: 0.5}, 4, 4, false, everything, "", ""},
		"more than half goes":           {Limits{MaxDeleteFraction: 0.5}, 3, 3, false, []string{"Create a", "Create b", "Update e"}, "DeletionHeld", "2 of 3 Services"},
		"more than half, and confirmed": {Limits{MaxDeleteFraction: 0.5}, 3, 3, true, everything, "", ""},
		"all that there are":            {Limits{MaxDeleteFraction: 0.9}, 2, 2, false, []string{"Create a", "Create b", "Update e"}, "DeletionHeld", "2 of 2 Services"},
		"nothing may go":                {Limits{}, 100, 100, false, []string{"Create a", "Create b", "Update e"}, "DeletionHeld", "allows only 0"},
	} {
		t.Run(name, c.check)
	}
}

// TestCapacityLimits: what -max-services-per-namespace lets one plan create.
func TestCapacityLimits(t *testing.T) {
	for name, c := range map[string]limitsCase{
		"no limits":              {Limits{MaxDeleteFraction: 1}, 2, 9999, false, everything, "", ""},
		"namespace is just full": {Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 10}, 3, 10, false, everything, "", ""},
		"namespace is too full":  {Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 10}, 3, 11, false, []string{"Delete c", "Delete d", "Update e"}, "TooManyServices", "would have 11"},
		"held ones count, too":   {Limits{MaxServicesPerNamespace: 10}, 3, 9, false, []string{"Update e"}, "TooManyServices", "would have 11"},
	} {
		t.Run(name, c.check)
	}
}

func TestDeletionOfMost(t *testing.T) {
	for _, c := range []struct {
		deletes, owned int
		want           bool
	}{{0, 0, false}, {1, 1, false}, {1, 5, false}, {2, 4, false}, {2, 3, true}, {2, 2, true}, {300, 300, true}} {
		var plan Plan
		for range c.deletes {
			plan.Changes = append(plan.Changes, Change{Action: Delete})
		}
		if got := IsMassDeletion(plan, c.owned); got != c.want {
			t.Errorf("%d of %d: %v, want %v", c.deletes, c.owned, got, c.want)
		}
	}
}

func TestCapacityCondition(t *testing.T) {
	for name, c := range map[string]struct {
		capacity Capacity
		want     string
		says     string
	}{
		"little":                {Capacity{InCluster: 10, InNamespace: 5, FreeClusterIPs: -1}, "False EnoughCapacity", ""},
		"just enough":           {Capacity{InCluster: 10000, InNamespace: 5000, ClusterIPsInNamespace: 1000, NeededClusterIPs: 3, FreeClusterIPs: 3}, "False EnoughCapacity", ""},
		"full cluster":          {Capacity{InCluster: 10001, InNamespace: 5, FreeClusterIPs: -1}, "True ManyServices", "cluster has 10001"},
		"full namespace":        {Capacity{InCluster: 5001, InNamespace: 5001, FreeClusterIPs: -1}, "True ManyServices", "namespace has 5001"},
		"environment variables": {Capacity{ClusterIPsInNamespace: 1001, FreeClusterIPs: -1}, "True ManyEnvironmentVariables", "1001 Services with a cluster IP"},
		"addresses":             {Capacity{NeededClusterIPs: 4, FreeClusterIPs: 3}, "True FewClusterIPs", "4 Services still need a cluster IP, and 3"},
		"no address left":       {Capacity{NeededClusterIPs: 1, FreeClusterIPs: 0}, "True FewClusterIPs", "0 addresses are free"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.capacity.condition()
			if string(got.Status)+" "+got.Reason != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("got %s %s: %s, want %s about %q", got.Status, got.Reason, got.Message, c.want, c.says)
			}
		})
	}
}

func TestCapacityCensus(t *testing.T) {
	service := func(namespace, clusterIP string) *Service {
		return kept(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: corev1.ServiceSpec{ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}}})
	}
	cidr := func(age time.Duration, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	var c Census
	capacity := func(ls *v1alpha1.LocalService, want int, cidrs []*networkingv1.ServiceCIDR, expect Capacity) {
		t.Helper()
		if diff := cmp.Diff(expect, c.Capacity(ls, want, cidrs)); diff != "" {
			t.Errorf("capacity (-want +got):\n%s", diff)
		}
	}
	headless, addressed := localService(), localService(specs["cluster IP"])
	cidrs := []*networkingv1.ServiceCIDR{cidr(time.Hour, "10.1.0.0/30"), cidr(2*time.Hour, "10.0.0.0/29", "fd00::/112")}
	capacity(headless, 0, nil, Capacity{FreeClusterIPs: -1})
	c.Change(nil, service("default", "None"))
	c.Change(nil, service("default", "10.0.0.1"))
	c.Change(nil, service("other", "10.0.0.2"))
	c.Change(nil, service("other", "")) // ExternalName
	capacity(headless, 5, cidrs, Capacity{InCluster: 9, InNamespace: 7, FreeClusterIPs: -1})
	wanted := Capacity{InCluster: 9, InNamespace: 7, ClusterIPsInNamespace: 6, NeededClusterIPs: 5, FreeClusterIPs: 6 + 2 - 2}
	capacity(addressed, 5, cidrs, wanted)
	// As the Services come, the numbers stay, but for what is still needed and free.
	for i := range 3 {
		c.Change(nil, kept(stored(template(t, addressed).Service(nodeNames(3)[i]))))
	}
	wanted.NeededClusterIPs, wanted.FreeClusterIPs = 2, 3
	capacity(addressed, 5, cidrs, wanted)
	if got := c.Owned(addressed); got != 3 {
		t.Errorf("%d owned, want 3", got)
	}
	// Addresses of the other family are another matter.
	wanted.FreeClusterIPs = 1<<16 - 1
	capacity(localService(specs["IPv6"]), 5, cidrs, wanted)
	wanted.FreeClusterIPs = 3
	capacity(localService(specs["dual stack by families"]), 5, cidrs, wanted)
	c.Change(service("default", "10.0.0.1"), service("default", "None"))
	c.Change(service("other", ""), nil)
	c.Change(service("other", "10.0.0.2"), nil)
	for i := range 3 {
		c.Change(kept(stored(template(t, addressed).Service(nodeNames(3)[i]))), nil)
	}
	capacity(addressed, 0, cidrs, Capacity{InCluster: 2, InNamespace: 2, FreeClusterIPs: 8})
	if len(c.namespaces) != 1 || len(c.owned) != 0 {
		t.Errorf("%d namespaces and %d LocalServices remembered, want 1 and 0", len(c.namespaces), len(c.owned))
	}
}

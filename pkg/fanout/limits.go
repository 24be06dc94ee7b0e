package fanout

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// What Kubernetes is tested with, and known to stand. https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md
// gives the first two. The third is where pods begin to fail to start, because each Service with a cluster IP becomes
// several environment variables of every pod of its namespace: https://github.com/kubernetes/kubernetes/issues/92615.
const (
	servicesPerCluster            = 10000
	servicesPerNamespace          = 5000
	clusterIPServicesPerNamespace = 1000
)

// Limits are what an operator allows a LocalService to do at once.
type Limits struct {
	// MaxDeleteFraction is the greatest part of its Services that one plan may delete. 1 allows all.
	MaxDeleteFraction float64
	// MaxServicesPerNamespace is the greatest number of Services, of all kinds, that a plan may bring a namespace to.
	// 0 is no limit.
	MaxServicesPerNamespace int
}

// Held is what limits have kept a plan from doing.
type Held struct {
	// Deletes is the number of Services that are not deleted, of Services that there are.
	Deletes, Services int
	// Creates is the number of Services that are not created, because the namespace would have Total.
	Creates, Total int

	// Limits are those that have kept it.
	Limits Limits
}

// Count is the number of changes of some kinds in a plan.
func (p *Plan) Count(actions ...Action) int {
	n := 0
	for i := range p.Changes {
		if slices.Contains(actions, p.Changes[i].Action) {
			n++
		}
	}
	return n
}

// Apply takes out of a plan what the limits forbid: all or nothing of a kind, never half a fan-out. It is told how many
// Services the LocalService has, and how many its namespace is to have in all.
func (l Limits) Apply(plan Plan, ls *v1alpha1.LocalService, owned, total int) (Plan, Held) {
	held := Held{Limits: l}
	deletes, creates := plan.Count(Delete), plan.Count(Create)
	if l.MaxDeleteFraction < 1 && float64(deletes) > l.MaxDeleteFraction*float64(owned) && ls.Annotations[v1alpha1.AllowDeletionAnnotationKey] != "true" {
		held.Deletes, held.Services = deletes, owned
	}
	if total += held.Deletes; creates > 0 && l.MaxServicesPerNamespace > 0 && total > l.MaxServicesPerNamespace {
		held.Creates, held.Total = creates, total
	}
	if held.Deletes+held.Creates == 0 {
		return plan, held
	}
	out := Plan{InPlace: plan.InPlace}
	for _, change := range plan.Changes {
		if change.Action == Delete && held.Deletes > 0 || change.Action == Create && held.Creates > 0 {
			continue
		}
		out.Changes = append(out.Changes, change)
	}
	return out, held
}

// reason is why a LocalService is not ready because of limits, "" if it is not because of them.
func (h *Held) reason() (reason, message string) {
	switch {
	case h.Creates > 0:
		return v1alpha1.ReasonTooManyServices, fmt.Sprintf("%d Services are not created, because the namespace would have %d and the controller's flag "+
			"-max-services-per-namespace allows %d: let nodeSelector choose fewer nodes, delete Services, or raise the limit", h.Creates, h.Total, h.Limits.MaxServicesPerNamespace)
	case h.Deletes > 0:
		return v1alpha1.ReasonDeletionHeld, fmt.Sprintf("%d of %d Services are wanted by no selected node, and are not deleted, because the controller's flag "+
			"-max-delete-fraction allows only %g of them at once: correct nodeSelector, or annotate this LocalService with %s=true if it is meant",
			h.Deletes, h.Services, h.Limits.MaxDeleteFraction, v1alpha1.AllowDeletionAnnotationKey)
	}
	return "", ""
}

// IsMassDeletion says whether a plan deletes so many of a LocalService's Services that it may be a mistake, and should be
// announced: most of them, and more than one.
func IsMassDeletion(plan Plan, owned int) bool {
	deletes := plan.Count(Delete)
	return deletes > 1 && 2*deletes > owned
}

// Capacity is how many Services there are to be, with all that a LocalService wants, and how many there can be.
type Capacity struct {
	InCluster, InNamespace, ClusterIPsInNamespace int
	// NeededClusterIPs is the number of addresses that the LocalService still needs, and FreeClusterIPs that of those
	// that the cluster has left, -1 if that is not known.
	NeededClusterIPs, FreeClusterIPs int
}

// IsShort says whether there are to be more Services than a cluster is known to stand.
func (c *Capacity) IsShort() bool { return c.condition().Status == metav1.ConditionTrue }

// condition is NearCapacity.
func (c *Capacity) condition() metav1.Condition {
	out := metav1.Condition{Type: v1alpha1.ConditionNearCapacity, Status: metav1.ConditionTrue}
	switch {
	case c.FreeClusterIPs >= 0 && c.NeededClusterIPs > c.FreeClusterIPs:
		out.Reason = v1alpha1.ReasonFewClusterIPs
		out.Message = fmt.Sprintf("%d Services still need a cluster IP, and %d addresses are free: use headless Services (clusterIP: None), or add a ServiceCIDR", c.NeededClusterIPs, c.FreeClusterIPs)
	case c.ClusterIPsInNamespace > clusterIPServicesPerNamespace:
		out.Reason = v1alpha1.ReasonManyEnvironmentVariables
		out.Message = fmt.Sprintf("the namespace has %d Services with a cluster IP; each becomes environment variables of every new pod, and beyond %d pods may fail to start: "+
			"use headless Services (clusterIP: None), or enableServiceLinks: false in the pods", c.ClusterIPsInNamespace, clusterIPServicesPerNamespace)
	case c.InNamespace > servicesPerNamespace:
		out.Reason = v1alpha1.ReasonManyServices
		out.Message = fmt.Sprintf("the namespace has %d Services; Kubernetes is tested with up to %d: let nodeSelector choose fewer nodes, or use another namespace", c.InNamespace, servicesPerNamespace)
	case c.InCluster > servicesPerCluster:
		out.Reason = v1alpha1.ReasonManyServices
		out.Message = fmt.Sprintf("the cluster has %d Services; Kubernetes is tested with up to %d: let nodeSelector choose fewer nodes", c.InCluster, servicesPerCluster)
	default:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, v1alpha1.ReasonEnoughCapacity, "there are not more Services than Kubernetes is tested with"
	}
	return out
}

package metrics

import (
	"iter"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// other replaces label values that do not come from this controller: they may be anything, and each would be a time
// series.
const other = "other"

var (
	conditionsDesc = desc("localservices", "LocalServices by condition and its status, with the reason of the "+
		"condition Ready. One that does not have a condition is not counted there.", "condition", "status", "reason")
	servicesDesc = desc("services", "Services of all LocalServices by state: desired or in_place. One of mode "+
		"Hostnames desires two.", "state")
	namespaceServicesDesc = desc("namespace_services", "Services that the LocalServices of a namespace desire or "+
		"have, whichever are more, by whether they have cluster IPs.", "namespace", "cluster_ips")
	namesDesc = desc("names", "Names of nodes, or groups of nodes, of all LocalServices by state: desired, or ready "+
		"(with a ready endpoint).", "state")
	invalidDesc = desc("invalid", "1 for each LocalService whose spec cannot be turned into Services, or cannot even "+
		"be read.", "namespace", "name")
)

func desc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc("localservice_"+name, help, labels, nil, metrics.ALPHA, "")
}

// readyReasons lists the reasons of the condition Ready, each with its status. The status is a part of the API:
// others may write any reason into it, and each would be a time series.
var readyReasons = map[string]metav1.ConditionStatus{
	v1alpha1.ReasonServicesInPlace:       metav1.ConditionTrue,
	v1alpha1.ReasonHostnamesInPlace:      metav1.ConditionTrue,
	v1alpha1.ReasonNoneAnswering:         metav1.ConditionTrue,
	v1alpha1.ReasonWaitingForController:  metav1.ConditionUnknown,
	v1alpha1.ReasonInvalidSpec:           metav1.ConditionFalse,
	v1alpha1.ReasonHostnamesNotPermitted: metav1.ConditionFalse,
	v1alpha1.ReasonWriteFailed:           metav1.ConditionFalse,
	v1alpha1.ReasonNoNodesSelected:       metav1.ConditionFalse,
	v1alpha1.ReasonWritingServices:       metav1.ConditionFalse,
	v1alpha1.ReasonNameTaken:             metav1.ConditionFalse,
	v1alpha1.ReasonContested:             metav1.ConditionFalse,
	v1alpha1.ReasonWaiting:               metav1.ConditionFalse,
	v1alpha1.ReasonNoEndpointSlices:      metav1.ConditionFalse,
}

// otherConditions lists all conditions except Ready.
var otherConditions = []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionConflicted,
	v1alpha1.ConditionContested, v1alpha1.ConditionStalled}

// Collector computes metrics from the caches at each scrape, so that none is ever stale.
type Collector struct {
	metrics.BaseStableCollector
	// LocalServices returns all LocalServices in the cache.
	LocalServices func() iter.Seq[*v1alpha1.LocalService]
}

// DescribeWithStability describes the metrics.
func (c *Collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{conditionsDesc, servicesDesc, namespaceServicesDesc, namesDesc,
		invalidDesc} {
		ch <- d
	}
}

// condition holds the labels of conditionsDesc.
type condition struct{ name, status, reason string }

// namespaceServices holds the labels of namespaceServicesDesc.
type namespaceServices struct {
	namespace  string
	clusterIPs bool
}

// invalid identifies the condition of a LocalService whose spec cannot be turned into Services.
var invalid = condition{v1alpha1.ConditionReady, string(metav1.ConditionFalse), v1alpha1.ReasonInvalidSpec}

// CollectWithStability computes the metrics.
func (c *Collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value int, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, float64(value), labels...)
	}
	conditions := map[condition]int{}
	for _, name := range otherConditions { // They have series before the first LocalService has the condition.
		conditions[condition{name, string(metav1.ConditionTrue), ""}] = 0
		conditions[condition{name, string(metav1.ConditionFalse), ""}] = 0
	}
	namespaces := map[namespaceServices]int{}
	var desired, inPlace, names, ready int
	for ls := range c.LocalServices() {
		for i := range ls.Status.Conditions {
			labels, isOurs := labelsOf(&ls.Status.Conditions[i])
			if isOurs {
				conditions[labels]++
			}
			if labels == invalid {
				gauge(invalidDesc, 1, ls.Namespace, ls.Name)
			}
		}
		services := int(ls.Status.Nodes)
		if ls.Spec.Mode == v1alpha1.ModeHostnames {
			services = 2 // One selects the pods, and one has the names.
		}
		desired += services
		inPlace += int(ls.Status.Services)
		namespaces[namespaceServices{ls.Namespace, plan.HasClusterIPs(ls)}] += max(services, int(ls.Status.Services))
		names += int(ls.Status.Nodes)
		ready += int(ls.Status.ReadyNodes)
	}
	for labels, n := range conditions {
		gauge(conditionsDesc, n, labels.name, labels.status, labels.reason)
	}
	gauge(servicesDesc, desired, "desired")
	gauge(servicesDesc, inPlace, "in_place")
	for labels, n := range namespaces {
		gauge(namespaceServicesDesc, n, labels.namespace, strconv.FormatBool(labels.clusterIPs))
	}
	gauge(namesDesc, names, "desired")
	gauge(namesDesc, ready, "ready")
}

// labelsOf returns the labels of a condition, and whether the controller sets that condition. The number of results
// is bounded: the schema has three values of a status.
func labelsOf(c *metav1.Condition) (labels condition, isOurs bool) {
	labels = condition{name: c.Type, status: string(c.Status)}
	if c.Type != v1alpha1.ConditionReady {
		return labels, slices.Contains(otherConditions, c.Type)
	}
	if labels.reason = c.Reason; readyReasons[c.Reason] != c.Status {
		labels.reason = other
	}
	return labels, true
}

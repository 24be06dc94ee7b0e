package metrics

import (
	"iter"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// other stands for what is not ours, and may be anything.
const other = "other"

var (
	conditionsDesc = desc("localservices", "LocalServices by condition and its status, with the reason of the condition "+
		"Ready. One that does not have a condition is not counted there.", "condition", "status", "reason")
	objectsDesc  = desc("objects", "LocalServices by mode.", "mode")
	servicesDesc = desc("services", "Services of all LocalServices by state: desired, in_place, conflicted (the name is "+
		"taken) or contested (somebody else changes fields). One of mode Hostnames desires two.", "state")
	namesDesc = desc("names", "Names of nodes, or groups of nodes, of all LocalServices by state: desired, or ready "+
		"(with a ready endpoint).", "state")
	cacheAgeDesc = desc("cache_age_seconds", "Time since the API server has sent anything for the cache of a resource: "+
		"at rest it sends a bookmark about every minute.", "resource")
)

func desc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc("localservice_"+name, help, labels, nil, metrics.ALPHA, "")
}

// readyReasons are the reasons of the condition Ready, with the status that each goes with. The status is a part of the
// API: somebody else may write any reason, of which each would be a time series.
var readyReasons = map[string]metav1.ConditionStatus{
	v1alpha1.ReasonServicesInPlace:       metav1.ConditionTrue,
	v1alpha1.ReasonHostnamesInPlace:      metav1.ConditionTrue,
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

// otherConditions are those beside Ready.
var otherConditions = []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionConflicted,
	v1alpha1.ConditionContested, v1alpha1.ConditionStalled, v1alpha1.ConditionRetiring,
	v1alpha1.ConditionNearCapacity}

// Collector computes metrics from the caches whenever they are asked for: so none is ever stale, and there are no books
// to keep.
type Collector struct {
	metrics.BaseStableCollector
	// LocalServices are all that the cache has.
	LocalServices func() iter.Seq[*v1alpha1.LocalService]
	// LastHeard is when the API server has sent something for the cache of a resource.
	LastHeard func() map[string]time.Time
}

// DescribeWithStability describes the metrics.
func (c *Collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{conditionsDesc, objectsDesc, servicesDesc, namesDesc, cacheAgeDesc} {
		ch <- d
	}
}

// condition are the labels of conditionsDesc.
type condition struct{ name, status, reason string }

// CollectWithStability computes the metrics.
func (c *Collector) CollectWithStability(ch chan<- metrics.Metric) {
	gauge := func(desc *metrics.Desc, value int, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, float64(value), labels...)
	}
	conditions := map[condition]int{}
	for reason, status := range readyReasons {
		conditions[condition{v1alpha1.ConditionReady, string(status), reason}] = 0
	}
	for _, name := range otherConditions {
		conditions[condition{name, string(metav1.ConditionTrue), ""}] = 0
		conditions[condition{name, string(metav1.ConditionFalse), ""}] = 0
	}
	modes := map[v1alpha1.Mode]int{v1alpha1.ModeServices: 0, v1alpha1.ModeHostnames: 0}
	var sum numbers
	for ls := range c.LocalServices() {
		for i := range ls.Status.Conditions {
			if labels, isOurs := labelsOf(&ls.Status.Conditions[i]); isOurs {
				conditions[labels]++
			}
		}
		modes[modeOf(ls)]++
		sum.add(numbersOf(ls))
	}
	for labels, n := range conditions {
		gauge(conditionsDesc, n, labels.name, labels.status, labels.reason)
	}
	for mode, n := range modes {
		gauge(objectsDesc, n, string(mode))
	}
	sum.services(func(state string, n int) { gauge(servicesDesc, n, state) })
	gauge(namesDesc, sum.names, "desired")
	gauge(namesDesc, sum.namesReady, "ready")
	for resource, at := range c.LastHeard() {
		ch <- metrics.NewLazyConstMetric(cacheAgeDesc, metrics.GaugeValue, time.Since(at).Seconds(), resource)
	}
}

// labelsOf are the labels of a condition, and whether it is one of ours. There is a fixed number of them.
func labelsOf(c *metav1.Condition) (labels condition, isOurs bool) {
	labels = condition{name: c.Type, status: string(c.Status)}
	if c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse {
		labels.status = string(metav1.ConditionUnknown)
	}
	if c.Type != v1alpha1.ConditionReady {
		return labels, slices.Contains(otherConditions, c.Type)
	}
	if labels.reason = c.Reason; readyReasons[c.Reason] != c.Status {
		labels.reason = other
	}
	return labels, true
}

// modeOf is the mode of a LocalService, whose default is Services also where it could not be read.
func modeOf(ls *v1alpha1.LocalService) v1alpha1.Mode {
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return v1alpha1.ModeHostnames
	}
	return v1alpha1.ModeServices
}

// hostnamesServices is how many Services a LocalService of mode Hostnames has: one that selects the pods, and one that
// has the names.
const hostnamesServices = 2

// numbers are of one LocalService, or of several.
type numbers struct {
	desired, inPlace  int
	findings          Findings
	names, namesReady int
}

// numbersOf returns the numbers in the status of a LocalService, and those that it does not count.
func numbersOf(ls *v1alpha1.LocalService) numbers {
	n := numbers{desired: int(ls.Status.Nodes), inPlace: int(ls.Status.Services),
		findings: findingsOf(types.NamespacedName{Namespace: ls.Namespace, Name: ls.Name}),
		names:    int(ls.Status.Nodes), namesReady: int(ls.Status.ReadyNodes)}
	if modeOf(ls) == v1alpha1.ModeHostnames {
		n.desired = hostnamesServices
	}
	return n
}

func (n *numbers) add(other numbers) {
	n.desired += other.desired
	n.inPlace += other.inPlace
	n.findings.Conflicted += other.findings.Conflicted
	n.findings.Contested += other.findings.Contested
	n.names += other.names
	n.namesReady += other.namesReady
}

// services calls report with each state of Services.
func (n *numbers) services(report func(state string, n int)) {
	report("desired", n.desired)
	report("in_place", n.inPlace)
	report("conflicted", n.findings.Conflicted)
	report("contested", n.findings.Contested)
}

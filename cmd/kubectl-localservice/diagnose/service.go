package diagnose

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// addService adds to a name what is wrong with the Service that it needs, or in mode Hostnames with the first of both,
// and how it is reached.
func addService(n *name) {
	if n.result.Service == "" {
		return
	}
	n.result.DNSName = n.result.Name() + "." + n.facts.LocalService.Namespace + ".svc." + n.facts.ClusterDomain
	n.service = compareService(n, n.facts.purpose)
	n.result.HasService = n.service.Reason != ServiceMissing && n.service.Reason != NameConflict
	if n.facts.hostnames != nil && n.service.Reason == "" {
		n.service = compareService(n, plan.Source)
	}
}

// compareService says what is wrong with a Service of a name. It adds to the name in what else the Service differs from
// what the LocalService says.
func compareService(n *name, purpose plan.Purpose) Finding {
	f, ls, service, node, position := n.facts, n.facts.LocalService, "Service", "", 0
	name := plan.ServiceName(ls.Name, purpose, n.result.Node)
	switch purpose {
	case plan.ForNode:
		node = n.result.Node
	case plan.Source:
		service = "Service " + name + " for the pods"
	case plan.Published:
		service, position = "Service "+name+" for the names", 1
	}
	object := f.services[name]
	if object == nil {
		return untilWritten(f, ServiceMissing, "no "+service)
	}
	switch holder := plan.HolderOf(ls, purpose, node, f.nodeLabelKey, object); {
	case holder == plan.Foreign:
		conflict := Finding{Reason: NameConflict, About: name, Cause: "the name is taken by a Service without an owner",
			Act: "if nothing uses it, delete it; otherwise create this LocalService under another name"}
		if purpose == plan.ForNode {
			conflict.Act = "if it is for the pods on node " + node + ", have it adopted: " +
				words.AdoptionCommand(f.Kubectl, ls, node, f.nodeLabelKey) + "; " + conflict.Act
		}
		if owner := plan.ControllerOf(object); owner != (plan.Controller{}) {
			conflict.Cause = "the name is taken by a Service of " + quoteForeign(words.Controller(owner))
			conflict.Act = "create this LocalService under another name: deleting the Service does not help, as its " +
				"owner would create it again"
		}
		return conflict
	case holder == plan.Predecessor, object.DeletionTimestamp != nil:
		return Finding{Reason: ServiceOutdated, Cause: "the " + service + " is being deleted"}
	case len(f.templates) == 0:
		return Finding{}
	case !labels.Equals(object.Spec.Selector, f.templates[position].Service(node).Spec.Selector):
		other := untilWritten(f, ServiceOutdated, "the "+service+" has another selector than the LocalService says")
		other.About = quoteForeign(labels.FormatLabels(object.Spec.Selector))
		return other
	}
	fields := f.templates[position].Mismatches(object, node)
	n.differs = append(n.differs, only(fields, func(field string) bool { // Labels of nodes may be needed for two of them.
		return f.AllNodes || field != "labels" && field != "annotations"
	})...)
	return Finding{}
}

// untilWritten says of a problem why the controller has not written what it needs: its status says so, or it has not
// acted yet.
func untilWritten(f *facts, reason Reason, problem string) Finding {
	why := "the controller has not written it yet"
	switch {
	case f.LocalService.DeletionTimestamp != nil:
		why = "the LocalService is being deleted"
	case f.refusal != "":
		why = words.Printable(f.refusal)
	}
	return Finding{Reason: reason, Cause: problem + "; " + why, Waits: true}
}

// nodeLabelKey returns the key of the node label that the controller uses, from the selector of a Service of the
// LocalService; the default if there is none.
func nodeLabelKey(ls *v1alpha1.LocalService, services []*corev1.Service) string {
	for _, service := range services {
		node := service.Annotations[v1alpha1.NodeAnnotationKey]
		if node == "" || !metav1.IsControlledBy(service, ls) {
			continue
		}
		for key, value := range service.Spec.Selector {
			if _, own := ls.Spec.Selector[key]; !own && value == naming.NodeLabelValue(node) {
				return key
			}
		}
	}
	return v1alpha1.DefaultNodeLabelKey
}

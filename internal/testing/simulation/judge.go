package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// judge checks that a replica may make a write.
func (g *guard) judge(w Write) {
	switch w.Resource {
	case "leases", "events":
	case "localservices":
		without := func(o Object) { o.(*v1alpha1.LocalService).Status = v1alpha1.LocalServiceStatus{} }
		if w.Verb() != "update" || !g.isSameBut(w, without) {
			g.fail("more than a status was written", "%s: %s", w.By, &w)
			return
		}
		g.checkConditions(w)
	case "pods":
		g.judgePod(w)
	case "services":
		g.judgeService(w)
	case "endpointslices":
		g.judgeSlice(w)
	default:
		g.fail("what is none of ours was written", "%s: %s", w.By, &w)
	}
}

// isSameBut reports whether an update changes only what without removes.
func (g *guard) isSameBut(w Write, without func(Object)) bool {
	before, after := w.Before.DeepCopyObject().(Object), w.After.DeepCopyObject().(Object)
	without(before)
	without(after)
	after.SetResourceVersion(before.GetResourceVersion())
	return apiequality.Semantic.DeepEqual(before, after)
}

// isOfPair reports whether a Service that was created is one of the two of mode Hostnames, of which the other exists:
// then both are kept, also while no node is selected.
func (g *guard) isOfPair(w Write) bool {
	s := newSnapshot(g.server)
	ls := s.owner(w.After)
	delete(s.services, w.Key)
	if ls == nil {
		return false
	}
	_, isWanted := s.names(ls)[w.Key.Name]
	return isWanted
}

func (g *guard) judgeService(w Write) {
	d := g.demandOf(w.Key)
	if before, ok := w.Before.(*corev1.Service); ok && !g.isOurs(before) {
		g.fail("a Service of somebody else was changed", "%s: %s", w.By, &w)
	}
	if after, ok := w.After.(*corev1.Service); ok && g.isAsWritten(after) {
		g.checkName(after)
		g.checkOwner(w, after)
	}
	g.checkKept(w, d)
	defer g.follow(w)
	switch w.Verb() {
	case "update":
		g.checkNodePorts(w, w.Before.(*corev1.Service), w.After.(*corev1.Service))
	case "create":
		// Two LocalServices may want one name, for nodes of their own. A Service that is restored may have no owner.
		ref := metav1.GetControllerOf(w.After)
		isWanted := d.signature != "" && (ref == nil || strings.Contains(d.signature, string(ref.UID)))
		if !isWanted && time.Since(g.changed) > g.reaction() && !g.isExcused() && !g.isOfPair(w) {
			g.fail("a Service was created that its owner does not want", "%s: %s", w.By, w.Key)
		}
	case "delete":
		service := w.Before.(*corev1.Service)
		ref := metav1.GetControllerOf(service)
		isCurrent := ref != nil && strings.Contains(d.signature, string(ref.UID)+" "+formOfService(service))
		late := g.reaction()
		if d.isByNode {
			late = liveness + 2*g.server.distance
		}
		if !slices.ContainsFunc(newSnapshot(g.server).wanted[w.Key], func(wanted want) bool {
			return wanted.node == service.Annotations[v1alpha1.NodeAnnotationKey]
		}) {
			isCurrent = false // It is of another node that wants the name, or says of none for which it is.
		}
		if isCurrent && time.Since(d.since) > late && !g.isSlow() {
			g.fail("a Service was deleted that is wanted", "%s: %s", w.By, w.Key)
		}
	}
}

// isAsWritten reports whether a Service can be expected to be as the controllers wrote it: admission has not changed
// it, it is not being deleted, and it was not restored with somebody's changes.
func (g *guard) isAsWritten(service *corev1.Service) bool {
	return g.server.admission == nil && service.DeletionTimestamp == nil && g.server.addresses.size >= plenty
}

// checkOwner checks that no existing Service is adopted for a LocalService that is gone: it would be deleted.
func (g *guard) checkOwner(w Write, service *corev1.Service) {
	ref := metav1.GetControllerOf(service)
	if ref == nil {
		return
	}
	if gone, isGone := g.gone[ref.UID]; w.Before != nil && isGone && time.Since(gone) > g.reaction() && !g.isSlow() &&
		metav1.GetControllerOf(w.Before) == nil {
		g.fail("a Service was adopted for a LocalService that is gone", "%s: %s", w.By, w.Key)
	}
}

// isOurs reports whether a Service is one that a LocalService controls, or may adopt.
func (g *guard) isOurs(service *corev1.Service) bool {
	ref := metav1.GetControllerOf(service)
	if ref == nil {
		return service.Labels[v1alpha1.OwnerLabelKey] != "" && service.Spec.Selector[rack] != "" ||
			service.Labels[v1alpha1.HostnamesLabelKey] != ""
	}
	return ref.Kind == v1alpha1.Kind && g.owners[ref.UID] == service.Namespace
}

// checkName checks that a Service that was written selects the pods of the node that it is named after, and no others.
func (g *guard) checkName(service *corev1.Service) {
	ref, node := metav1.GetControllerOf(service), service.Annotations[v1alpha1.NodeAnnotationKey]
	if node == "" || ref == nil {
		return
	}
	if service.Name != naming.ServiceName(ref.Name, node) || service.Spec.Selector[rack] != naming.NodeLabelValue(
		node) {
		g.fail("a name leads to another node", "Service %s of node %s selects %v", service.Name, node,
			service.Spec.Selector)
	}
}

func (g *guard) judgeSlice(w Write) {
	for _, object := range []Object{w.Before, w.After} {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok || slice == nil {
			continue
		}
		if slice.Labels[discoveryv1.LabelManagedBy] == sliceManager && slice.Labels[v1alpha1.HostnamesLabelKey] !=
			v1alpha1.HostnamesPublished {
			g.fail("an EndpointSlice of Kubernetes was changed", "%s: %s", w.By, &w)
		}
		if w.After == nil {
			g.checkCopyDeleted(w, slice)
		}
		for _, e := range slice.Endpoints {
			if object == w.After && !g.isNameOf(ptr.Deref(e.Hostname, ""), ptr.Deref(e.NodeName, "")) {
				g.fail("a name leads to another node", "%s: hostname %s on node %s", w.Key, ptr.Deref(e.Hostname, ""),
					ptr.Deref(e.NodeName, ""))
			}
		}
	}
}

func (g *guard) isNameOf(hostname, node string) bool {
	return hostname == naming.Hostname(node) || slices.Contains([]string{"east", "west", "north", "north-1"},
		hostname)
}

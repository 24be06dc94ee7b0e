package simulation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func (g *guard) demandOf(key types.NamespacedName) *demand {
	if g.names[key] == nil {
		g.names[key] = &demand{}
	}
	return g.names[key]
}

// update records what a write asks for.
func (g *guard) update(w Write) {
	if w.Resource == "services" {
		if !isReplica(w.By) {
			g.demandOf(w.Key).touched = time.Now()
		}
		g.updateDemands(w) // Without its Services of the other mode, a LocalService is valid.
		return
	}
	if ls, ok := w.After.(*v1alpha1.LocalService); ok && w.Before != nil && isReplica(w.By) &&
		ls.Generation == w.Before.GetGeneration() {
		return
	}
	if w.Resource == "localservices" {
		if w.After != nil {
			g.owners[w.After.GetUID()] = w.Key.Namespace
		}
		if w.After == nil || w.After.GetDeletionTimestamp() != nil {
			if _, known := g.gone[w.Before.GetUID()]; !known {
				g.gone[w.Before.GetUID()] = time.Now()
			}
		}
		if w.Before == nil || w.After == nil || w.Before.GetGeneration() != w.After.GetGeneration() {
			g.edited[w.Key] = time.Now() // and not only its status
		}
	}
	g.changed = time.Now()
	g.updateDemands(w)
}

// updateDemands records what is asked for after a write.
func (g *guard) updateDemands(w Write) {
	now, s := map[types.NamespacedName]string{}, newSnapshot(g.server)
	for key, wants := range s.wanted {
		for _, want := range wants {
			now[key] += string(want.ls.UID) + " " + formOfSpec(&want.ls.Spec)
		}
	}
	for key := range now {
		g.demandOf(key)
	}
	for key, service := range s.services {
		if s.mayMisfit(service) {
			g.failed[key.Namespace] = time.Now()
		}
	}
	if w.Resource == "services" && w.After == nil && !isReplica(w.By) {
		g.failed[w.Key.Namespace] = time.Now() // A late cache still has it, and another spec may not fit it.
	}
	for key, d := range g.names {
		d.stay(now[key], s.isKeptAt(key))
		if signature := now[key]; signature != d.signature {
			g.changed = time.Now()
			d.signature, d.since, d.isByNode = signature, time.Now(), w.Resource == "nodes"
		}
	}
}

// formOfSpec returns the immutable fields of a Service that a spec asks for, and formOfService those of a Service.
func formOfSpec(spec *v1alpha1.LocalServiceSpec) string {
	if spec.Mode == v1alpha1.ModeHostnames || spec.ClusterIP == corev1.ClusterIPNone {
		return fmt.Sprint("headless", spec.IPFamilies)
	}
	return fmt.Sprint("address", spec.IPFamilies)
}

func formOfService(service *corev1.Service) string {
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return "headless[]"
	}
	return "address[]"
}

package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// mayStay reports whether a LocalService may have a Service.
func (s *snapshot) mayStay(ls *v1alpha1.LocalService, service *corev1.Service) bool {
	_, isWanted := s.names(ls)[service.Name]
	return isWanted || s.isKept(ls, service)
}

// selectsNothing reports whether a LocalService chooses among the nodes, and selects none: then nothing of a node that
// exists is deleted.
func (s *snapshot) selectsNothing(ls *v1alpha1.LocalService) bool {
	return len(ls.Spec.NodeSelector)+len(ls.Spec.NodeSelectorTerms) > 0 &&
		!slices.ContainsFunc(s.nodes, func(node *corev1.Node) bool { return isSelected(ls, node) })
}

// isKept reports whether a Service that no node wants has to stay: its LocalService selects nothing, or has a spec that
// is invalid.
func (s *snapshot) isKept(ls *v1alpha1.LocalService, service *corev1.Service) bool {
	node := service.Annotations[v1alpha1.NodeAnnotationKey]
	return s.isInvalid(ls) || s.selectsNothing(ls) && (node == "" || s.hasNode(node))
}

func (s *snapshot) hasNode(name string) bool {
	return slices.ContainsFunc(s.nodes, func(node *corev1.Node) bool { return node.Name == name })
}

// isKeptAt reports whether there is a Service of this name that is kept.
func (s *snapshot) isKeptAt(key types.NamespacedName) bool {
	service := s.services[key]
	if service == nil {
		return false
	}
	owner := s.owner(service)
	return owner != nil && s.isKept(owner, service)
}

// stay records since when a Service of this name has had to stay: it is wanted, always in the same form, or kept.
func (d *demand) stay(signature string, isKept bool) {
	isOther := signature != "" && signature != d.form
	switch {
	case signature == "" && !isKept:
		d.stays = time.Time{}
	case isOther || d.stays.IsZero():
		d.stays = time.Now()
	}
	if signature != "" {
		d.form = signature
	}
}

// checkKept checks that a replica writes nothing for a LocalService whose spec is invalid, and deletes nothing of a
// node that exists while a nodeSelector matches nothing. What was wanted until then never had to be deleted.
func (g *guard) checkKept(w Write, d *demand) {
	s, service := newSnapshot(g.server), w.After
	if service == nil {
		service = w.Before
	}
	ls := s.owner(service)
	if ls == nil || g.isExcused() {
		return
	}
	if s.isInvalid(ls) && time.Since(g.edited[keyOf(ls)]) > g.reaction() {
		g.fail("a Service was written for an invalid spec", "%s: %s", w.By, &w)
	}
	isSettled := !d.stays.IsZero() && time.Since(d.stays) > g.reaction() && time.Since(d.touched) > g.reaction()
	isLast := strings.Contains(d.form, string(ls.UID)+" "+formOfService(service.(*corev1.Service)))
	if w.After == nil && d.signature == "" && isSettled && isLast {
		g.fail("a Service was deleted that is kept", "%s: %s", w.By, w.Key)
	}
}

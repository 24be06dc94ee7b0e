package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// Templates holds the templates of a LocalService: one for the Services of its nodes or, in mode Hostnames, one for
// each of its two Services.
type Templates []*Template

// NewTemplates returns the templates of a LocalService, in which variables stand for labels of nodes. If the spec is
// wrong in a way that the API's own validation accepts, it returns an error in words for the LocalService's author.
func NewTemplates(ls *v1alpha1.LocalService, nodeLabelKey string, labels NodeLabels) (Templates, error) {
	if err := validate(ls, nodeLabelKey); err != nil {
		return nil, err
	}
	if ls.Spec.Mode == v1alpha1.ModeHostnames {
		return Templates{newTemplate(ls, Source, nodeLabelKey), newTemplate(ls, Published, nodeLabelKey)}, nil
	}
	t := newTemplate(ls, ForNode, nodeLabelKey)
	t.nodeLabels = labels
	return Templates{t}, nil
}

// CheckMode returns an error if a LocalService controls a Service of the other mode: its mode was changed, which an
// older CustomResourceDefinition allows. That Service has the name and the mark of the other mode: somebody may have
// written the LocalService as the controller of any Service.
func CheckMode(ls *v1alpha1.LocalService, owned map[string]*corev1.Service) error {
	source, published := ServiceName(ls.Name, Source, ""), ServiceName(ls.Name, Published, "")
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		service, isHostnames := owned[name], name == source || name == published
		if isHostnames == (ls.Spec.Mode == v1alpha1.ModeHostnames) {
			continue
		}
		isMarked := name == ServiceName(ls.Name, ForNode, NodeOf(service))
		if isHostnames {
			mark := Purpose(service.Labels[v1alpha1.HostnamesLabelKey])
			isMarked = mark != ForNode && name == ServiceName(ls.Name, mark, "")
		}
		if isMarked {
			return fmt.Errorf("mode cannot be changed: create a second LocalService with the other mode, move the "+
				"clients, and delete this one. Nothing is written until its Services of the other mode are deleted, "+
				"such as %s", name)
		}
	}
	return nil
}

// Template determines the desired Services of a LocalService for one purpose, with the API server's defaults filled
// in.
type Template struct {
	owner        *v1alpha1.LocalService
	purpose      Purpose
	nodeLabelKey string
	want         corev1.Service // without the node, and without spec.serviceMetadata if that has variables
	hasVariables bool
	nodeLabels   NodeLabels
}

// NodeLabelKey returns the key of the node label.
func (t *Template) NodeLabelKey() string { return t.nodeLabelKey }

// unreadableKey is the key of an annotation that no object on an API server can have.
const unreadableKey = "\x00unreadable"

// MarkUnreadable marks a LocalService whose spec cannot be decoded, so that NewTemplates refuses it.
func MarkUnreadable(ls *v1alpha1.LocalService, err error) {
	metav1.SetMetaDataAnnotation(&ls.ObjectMeta, unreadableKey, err.Error())
}

// metadataFor returns the part of spec.serviceMetadata that a Service for a purpose gets. The Source does not get
// annotations that ask other software to publish the Service, because the Published Service has them.
func metadataFor(m *v1alpha1.ServiceMetadata, purpose Purpose) *v1alpha1.ServiceMetadata {
	if purpose != Source {
		return m
	}
	annotations := maps.Clone(m.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "external-dns.") || strings.HasPrefix(key, "prometheus.io/")
	})
	return &v1alpha1.ServiceMetadata{Labels: m.Labels, Annotations: annotations}
}

// addMetadata adds labels and annotations of a LocalService, and a record of their keys.
func addMetadata(service *corev1.Service, m *v1alpha1.ServiceMetadata) {
	maps.Copy(service.Labels, m.Labels)
	maps.Copy(service.Annotations, m.Annotations)
	if len(m.Labels)+len(m.Annotations) > 0 {
		service.Annotations[v1alpha1.AppliedMetadataAnnotationKey] = recordOf(m)
	}
}

func newTemplate(ls *v1alpha1.LocalService, purpose Purpose, nodeLabelKey string) *Template {
	t := &Template{owner: ls, purpose: purpose, nodeLabelKey: nodeLabelKey}
	for i := range fields {
		fields[i].fill(&ls.Spec, &t.want.Spec)
	}
	t.want.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ls,
		v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))}
	t.want.Labels, t.want.Annotations = map[string]string{}, map[string]string{}
	if m := ls.Spec.ServiceMetadata; m != nil {
		if t.hasVariables = purpose == ForNode && hasVariables(m); !t.hasVariables {
			addMetadata(&t.want, metadataFor(m, purpose))
		}
	}
	t.want.Labels[v1alpha1.OwnerLabelKey] = ls.Name
	switch purpose {
	case Published:
		t.want.Spec.Selector = nil
		t.want.Annotations[v1alpha1.GroupByAnnotationKey] = ls.Spec.GroupBy
		// Endpoints that remain after somebody set a selector for a while must not be mirrored.
		t.want.Labels[discoveryv1.LabelSkipMirror] = "true"
	}
	if purpose != ForNode {
		t.want.Spec.ClusterIP = corev1.ClusterIPNone
		t.want.Labels[v1alpha1.HostnamesLabelKey] = string(purpose)
	}
	return t
}

// NodeLabels returns the value of a node's label, and whether the node exists and has the label. The answer stays the
// same while a plan is made and carried out.
type NodeLabels func(node, key string) (value string, exists bool)

// wantFor returns the desired Service of a node, without its name. It omits labels and annotations with a variable for
// a label that the node does not have.
func (t *Template) wantFor(node string) *corev1.Service {
	want := t.want
	want.Labels, want.Annotations = maps.Clone(want.Labels), maps.Clone(want.Annotations)
	want.OwnerReferences, want.Spec.Selector = slices.Clone(want.OwnerReferences), maps.Clone(want.Spec.Selector)
	if t.hasVariables {
		label := func(key string) (value string, exists bool) { return t.nodeLabels(node, key) }
		given := t.owner.Spec.ServiceMetadata
		addMetadata(&want, &v1alpha1.ServiceMetadata{Labels: expandAll(given.Labels, node, label),
			Annotations: expandAll(given.Annotations, node, label)})
	}
	if t.purpose == ForNode {
		t.setNode(&want, node)
	}
	return &want
}

// setNode makes the desired Service of another node from that of a node, for a template without variables.
func (t *Template) setNode(want *corev1.Service, node string) {
	value := naming.NodeLabelValue(node)
	want.Spec.Selector[t.nodeLabelKey], want.Labels[t.nodeLabelKey] = value, value
	want.Annotations[v1alpha1.NodeAnnotationKey] = node
}

func (t *Template) name(node string) string { return ServiceName(t.owner.Name, t.purpose, node) }

// Wants reports whether a LocalService wants a Service with this name for a node with these labels.
func Wants(ls *v1alpha1.LocalService, node string, labels Labels, name string) bool {
	return LabelsPods(ls) && Selects(ls, node, labels) && ServiceName(ls.Name, ForNode, node) == name
}

// validate finds mistakes that the CustomResourceDefinition cannot find: that does not know this controller's node
// label key, and may be older than this controller.
func validate(ls *v1alpha1.LocalService, nodeLabelKey string) error {
	if reason, unreadable := ls.Annotations[unreadableKey]; unreadable {
		return fmt.Errorf("the spec cannot be read, and would be refused today: %s", reason)
	}
	if len(ls.Name) > naming.MaxLocalServiceLength {
		return fmt.Errorf("metadata.name has %d characters, of which %d fit into the names of its Services: choose "+
			"a shorter one", len(ls.Name), naming.MaxLocalServiceLength)
	}
	if ls.Spec.GroupBy != "" && ls.Spec.Mode != v1alpha1.ModeHostnames {
		return fmt.Errorf("spec.groupBy is for mode: Hostnames: set that, or remove it")
	}
	if len(ls.Spec.Selector) == 0 {
		return fmt.Errorf("spec.selector is empty: name at least one label of the pods to reach")
	}
	if _, found := ls.Spec.Selector[nodeLabelKey]; found {
		return fmt.Errorf("spec.selector names the node label %s, which the controller itself adds: remove it, and "+
			"use nodeSelector to choose nodes", nodeLabelKey)
	}
	if m := ls.Spec.ServiceMetadata; m != nil {
		if err := validateVariables(m); err != nil {
			return err
		}
		for _, key := range []string{nodeLabelKey, v1alpha1.OwnerLabelKey, v1alpha1.HostnamesLabelKey} {
			if _, found := m.Labels[key]; found {
				return fmt.Errorf("spec.serviceMetadata.labels names %s, which belongs to the controller: remove "+
					"it", key)
			}
		}
	}
	return nil
}

// Service returns the desired Service of a node, ready to be created. node is "" for a Service that belongs to no
// node.
func (t *Template) Service(node string) *corev1.Service {
	service := t.wantFor(node)
	service.Name, service.Namespace = t.name(node), t.owner.Namespace
	return service
}

// Mismatches returns the fields in which a Service differs from the desired Service of its node.
func (t *Template) Mismatches(service *corev1.Service, node string) []string {
	return compare(t.wantFor(node), service).fields
}

// IsUnchanged reports whether an update has left all that a LocalService decides about a Service.
func IsUnchanged(before, after *corev1.Service) bool {
	same := apiequality.Semantic.DeepEqual
	return same(before.Spec, after.Spec) && same(before.Labels, after.Labels) &&
		same(before.Annotations, after.Annotations) && same(before.OwnerReferences, after.OwnerReferences)
}

var seed = maphash.MakeSeed()

// sum returns a number that differs if what a Service should have differs, for the same spec: the name may become that
// of another node, and variables follow the labels of the node.
func (t *Template) sum(node string) uint64 {
	want := t.wantFor(node)
	return maphash.Comparable(seed, [3]string{node, labels.FormatLabels(want.Labels),
		labels.FormatLabels(want.Annotations)})
}

// Patch returns the JSON merge patch that updates a Service to what its node should have. The patch holds only
// differences, so that fields set by others survive, and fields that this program's version of the API does not know.
// It also holds the resource version, so that it never overwrites a change that the cache has not observed.
func (t *Template) Patch(service *corev1.Service, node string) ([]byte, error) {
	want, wanted, live := t.wantFor(node), service.DeepCopy(), *service
	for _, f := range allFields {
		if !f.matches(want, wanted) {
			f.set(want, wanted)
		}
	}
	live.ResourceVersion = "" // So that the patch includes it.
	before, beforeErr := json.Marshal(&live)
	after, afterErr := json.Marshal(wanted)
	if err := cmp.Or(beforeErr, afterErr); err != nil {
		return nil, err
	}
	return jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
}

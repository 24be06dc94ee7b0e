package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// client has the methods that the typed clients of all resources have in common.
type client[T metav1.Object] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions,
		subresources ...string) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// target is a resource of which random requests are made.
type target[T interface {
	metav1.Object
	runtime.Object
}] struct {
	kind   schema.GroupVersionResource
	client func(s *side, namespace string) client[T]
	verbs  []string
	names  []string
	// contents are random fields of an object but its metadata, in YAML, good and bad ones.
	contents []string
	// creations are more of them, for new objects only.
	creations []string
	// keepsContent is true if nobody replaces all fields at once.
	keepsContent bool
}

// random returns a request with a random verb, mostly in the existing namespace.
func (r *target[T]) random(p *pair) request {
	namespace, name := p.namespace, pick(p, r.names...)
	switch p.IntN(25) {
	case 0:
		namespace += ending
	case 1:
		namespace += absent
	}
	out := request{kind: r.kind.Resource, namespace: namespace, name: name}
	out.get = r.getter(namespace, name)
	switch verb := pick(p, r.verbs...); verb {
	case "create":
		r.create(p, &out, p.IntN(20) == 0)
	case "update":
		r.update(p, &out)
	case "patch":
		text := pick(p, append([]string{"{}", "{}"}, r.contents...)...)
		r.patch(p, &out, text)
	case "label": // changes only metadata
		r.patch(p, &out, "{}")
	case "delete":
		r.delete(p, &out)
	case "get":
		out.what = "get of its metadata"
		out.do = func(ctx context.Context, s *side, _ known) (any, error) {
			return s.meta.Resource(r.kind).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		}
	case "list":
		r.lists(p, &out)
	}
	return out
}

// getter returns a function that reads an object.
func (r *target[T]) getter(namespace, name string) func(context.Context, *side) (metav1.Object, error) {
	return func(ctx context.Context, s *side) (metav1.Object, error) {
		return r.client(s, namespace).Get(ctx, name, metav1.GetOptions{})
	}
}

// randomMetadata returns random fields of metadata, mostly valid ones.
func randomMetadata(p *pair) map[string]any {
	out := map[string]any{}
	set := func(key string, values ...any) {
		if p.IntN(3) == 0 {
			out[key] = pick(p, values...)
		}
	}
	owner := map[string]any{"apiVersion": "localservice.dev/v1alpha1", "kind": "LocalService", "name": "demo",
		"uid": "00000000-0000-0000-0000-00000000000a", "controller": true, "blockOwnerDeletion": true}
	other := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "b"}
	second := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c", "controller": true}
	bad := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "b"}
	set("labels", map[string]any{"app": "demo"}, map[string]any{"app": "other", "vm/rack": "a"},
		map[string]any{"app": nil}, map[string]any{"app": ""}, map[string]any{}, nil, map[string]any{"a b": "c"},
		map[string]any{"app": "a b"})
	set("annotations", map[string]any{"note": "a"}, map[string]any{"note": "b", "other": ""},
		map[string]any{"note": nil}, map[string]any{}, nil, map[string]any{"a b": "c"})
	set("ownerReferences", []any{owner}, []any{owner, other}, []any{}, nil, []any{bad}, []any{owner, second})
	if p.IntN(2) == 0 {
		set("finalizers", []any{"example.com/a"}, []any{"example.com/a", "example.com/b"}, []any{}, nil, []any{"a b"})
	}
	return out
}

// object returns an object with some fields, without those that are null.
func (r *target[T]) object(metadata map[string]any, content map[string]any) T {
	object := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	content["metadata"] = metadata
	encoded, err := json.Marshal(content)
	if err == nil {
		err = json.Unmarshal(encoded, object)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %v", encoded, err)) // A mistake in the test.
	}
	return object
}

func (r *target[T]) create(p *pair, out *request, hasVersion bool) {
	text := pick(p, slices.Concat(r.contents, r.creations)...)
	content, metadata := fieldsOf(text), randomMetadata(p)
	metadata["name"] = out.name
	if p.IntN(8) == 0 {
		delete(metadata, "name")
		metadata["generateName"] = pick(p, "made-", "made-", "Made-")
	}
	if hasVersion {
		metadata["resourceVersion"] = "1"
	}
	options := metav1.CreateOptions{FieldManager: v1alpha1.FieldManager}
	if p.IntN(4) == 0 {
		options.DryRun = []string{metav1.DryRunAll}
	}
	object := r.object(metadata, content)
	out.what = fmt.Sprintf("create%v %v {%s}", options.DryRun, metadata, text)
	out.do = func(ctx context.Context, s *side, _ known) (any, error) {
		return r.client(s, out.namespace).Create(ctx, object.DeepCopyObject().(T), options)
	}
}

// versionOf is a resource version by a word.
func versionOf(word string, was known) string {
	return map[string]string{"current": was.version, "stale": max(was.stale, "1"), "no": ""}[word]
}

// otherUID is the UID of no object.
const otherUID = "00000000-0000-0000-0000-00000000000f"

// uidOf is a UID by a word.
func uidOf(word string, was known) types.UID {
	return map[string]types.UID{"right": max(was.uid, otherUID), "wrong": otherUID, "no": ""}[word]
}

func (r *target[T]) update(p *pair, out *request) {
	text := pick(p, r.contents...)
	content, metadata, keeps := fieldsOf(text), randomMetadata(p), r.keepsContent || p.IntN(3) > 0
	version, uid := pick(p, "current", "current", "stale", "no"), pick(p, "no", "right", "right", "right", "wrong")
	if keeps {
		text = "as it was"
	}
	fresh := r.object(metadata, content)
	out.what = fmt.Sprintf("update %v {%s}, %s resourceVersion, %s UID", metadata, text, version, uid)
	out.do = func(ctx context.Context, s *side, was known) (any, error) {
		if was.object == nil { // Some would be created. The controllers update only what they have read.
			return "nothing to update", nil
		}
		object := fresh.DeepCopyObject().(T)
		if stored, ok := was.object.(T); ok && keeps {
			labels, annotations := object.GetLabels(), object.GetAnnotations()
			object = stored.DeepCopyObject().(T)
			object.SetLabels(labels)
			object.SetAnnotations(annotations)
		}
		object.SetName(out.name)
		object.SetResourceVersion(versionOf(version, was))
		object.SetUID(uidOf(uid, was))
		return r.client(s, out.namespace).Update(ctx, object, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	}
}

func (r *target[T]) patch(p *pair, out *request, text string) {
	content, metadata := map[string]any{}, map[string]any{}
	if text != "{}" {
		content = fieldsOf(text)
	}
	if p.IntN(2) == 0 {
		metadata = randomMetadata(p)
	}
	version, uid := pick(p, "current", "current", "stale", "no"), pick(p, "no", "no", "no", "right", "wrong")
	out.what = fmt.Sprintf("patch %v {%s}, %s resourceVersion, %s UID", metadata, text, version, uid)
	out.do = func(ctx context.Context, s *side, was known) (any, error) {
		sent := map[string]any{"resourceVersion": versionOf(version, was), "uid": uidOf(uid, was)}
		maps.Copy(sent, metadata)
		for key, value := range sent {
			if value == "" || value == types.UID("") {
				delete(sent, key)
			}
		}
		whole := maps.Clone(content)
		whole["metadata"] = sent
		patch, err := json.Marshal(whole)
		if err != nil {
			return nil, err
		}
		return r.client(s, out.namespace).Patch(ctx, out.name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	}
}

func (r *target[T]) delete(p *pair, out *request) {
	uid, version := pick(p, "no", "right", "right", "wrong"), pick(p, "no", "current", "stale")
	policy := pick(p, "", "", "", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
		metav1.DeletePropagationOrphan)
	out.what = fmt.Sprintf("delete with %s UID, %s resourceVersion, propagation policy %q", uid, version, policy)
	out.do = func(ctx context.Context, s *side, was known) (any, error) {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}
		if uid != "no" {
			options.Preconditions.UID = new(uidOf(uid, was))
		}
		if version != "no" {
			options.Preconditions.ResourceVersion = new(versionOf(version, was))
		}
		if policy != "" {
			// The real API server also compares the version with that of its own change of the finalizers, and the
			// controllers have no policy.
			options.PropagationPolicy, options.Preconditions.ResourceVersion = &policy, nil
		}
		return "gone or going", r.client(s, out.namespace).Delete(ctx, out.name, options)
	}
}

func (r *target[T]) lists(p *pair, out *request) {
	options := pick(p, metav1.ListOptions{}, metav1.ListOptions{LabelSelector: "app=demo"},
		metav1.ListOptions{LabelSelector: "vm/rack,app!=demo"},
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", out.name).String()})
	out.what = fmt.Sprintf("list of the metadata of those with %q %q", options.LabelSelector, options.FieldSelector)
	out.do = func(ctx context.Context, s *side, _ known) (any, error) {
		list, err := s.meta.Resource(r.kind).Namespace(out.namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		var names []string
		for i := range list.Items {
			names = append(names, nameOf(&list.Items[i]))
		}
		slices.Sort(names)
		return names, nil
	}
}

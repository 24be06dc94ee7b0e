package cache

import (
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Identity keeps the fields that an informer needs of an object: its key and its resource version. A struct that embeds
// it can be cached.
type Identity struct {
	namespace       unique.Handle[string]
	name            string
	resourceVersion string
}

func identityOf(object metav1.Object) Identity {
	return Identity{
		namespace:       unique.Make(object.GetNamespace()),
		name:            object.GetName(),
		resourceVersion: object.GetResourceVersion(),
	}
}

// KeyOf returns the key of an object, be it whole or trimmed by a cache.
func KeyOf(object klog.KMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// GetNamespace returns the object's namespace, "" for none.
func (i *Identity) GetNamespace() string { return i.namespace.Value() }

// GetName returns the object's name.
func (i *Identity) GetName() string { return i.name }

// GetResourceVersion returns the object's resource version when it was cached.
func (i *Identity) GetResourceVersion() string { return i.resourceVersion }

// GetObjectMeta makes it a metav1.ObjectMetaAccessor, from which caches make their keys.
func (i *Identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: i.GetNamespace(), Name: i.name, ResourceVersion: i.resourceVersion}
}

// Labels hold the labels of an object in one string, in the form of labels.Set.String, so that equal labels are ==.
type Labels string

func labelsOf(set map[string]string) Labels { return Labels(labels.Set(set).String()) }

// Lookup returns the value of a label, and whether there is one. It runs for every node in every sync.
func (l Labels) Lookup(key string) (value string, exists bool) {
	for label := range strings.SplitSeq(string(l), ",") {
		if value, found := strings.CutPrefix(label, key); found && strings.HasPrefix(value, "=") {
			return value[1:], true
		}
	}
	return "", false
}

// Set returns the labels as a map, for many look-ups.
func (l Labels) Set() labels.Set {
	set := labels.Set{}
	for label := range strings.SplitSeq(string(l), ",") {
		if key, value, ok := strings.Cut(label, "="); ok {
			set[key] = value
		}
	}
	return set
}

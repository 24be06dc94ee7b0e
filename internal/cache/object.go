package cache

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// KeyOf returns the key of an object, be it whole or trimmed by a cache.
func KeyOf(object klog.KMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
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

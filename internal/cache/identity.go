package cache

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identity keeps the fields that an informer needs of an object: its key and its resource version. A struct that embeds
// it can be cached.
type identity struct {
	namespace       unique.Handle[string]
	name            string
	resourceVersion string
}

func identityOf(object metav1.Object) identity {
	return identity{
		namespace:       unique.Make(object.GetNamespace()),
		name:            object.GetName(),
		resourceVersion: object.GetResourceVersion(),
	}
}

// GetNamespace returns the object's namespace, "" for none.
func (i *identity) GetNamespace() string { return i.namespace.Value() }

// GetName returns the object's name.
func (i *identity) GetName() string { return i.name }

// GetResourceVersion returns the object's resource version when it was cached.
func (i *identity) GetResourceVersion() string { return i.resourceVersion }

// GetObjectMeta makes it a metav1.ObjectMetaAccessor, from which caches make their keys.
func (i *identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: i.GetNamespace(), Name: i.name, ResourceVersion: i.resourceVersion}
}

package cache

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const nodeLabelKey = v1alpha1.DefaultNodeLabelKey

// newCaches returns caches that watch nothing. The test fills them.
func newCaches(t *testing.T, namespaces ...string) *Caches {
	t.Helper()
	return newCachesOf(t, kubefake.NewClientset(), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
		namespaces...)
}

func newCachesOf(t *testing.T, kube kubernetes.Interface, localServices dynamic.Interface,
	namespaces ...string) *Caches {
	t.Helper()
	return New(Options{Kube: kube, Dynamic: localServices,
		Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), NodeLabelKey: nodeLabelKey,
		Pods:       true,
		Namespaces: namespaces, OnReadError: func(context.Context, string, error) {},
		OnRestore: func(err error) { t.Error(err) }})
}

// show adds objects to a cache.
func show[T cache.Object](t *testing.T, store *Store[T], objects ...T) {
	t.Helper()
	for _, object := range objects {
		if err := store.Indexer(metav1.NamespaceAll).Add(object); err != nil {
			t.Fatal(err)
		}
	}
}

// hide removes objects from a cache.
func hide[T cache.Object](t *testing.T, store *Store[T], objects ...T) {
	t.Helper()
	for _, object := range objects {
		if err := store.Indexer(metav1.NamespaceAll).Delete(object); err != nil {
			t.Fatal(err)
		}
	}
}

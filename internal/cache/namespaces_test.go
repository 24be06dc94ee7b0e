package cache

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestNamespaces: one of two namespaces can be read at the start, the other one later. The start does not wait for it.
// Each has its own objects, and its LocalServices are reported last. No other namespace is requested.
func TestNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, localServices []runtime.Object
		for _, namespace := range []string{"a", "b", "c"} {
			all = append(all,
				objects.Service("service", func(s *corev1.Service) { s.Namespace = namespace }),
				objects.Pod("pod", "n", objects.Unlabelled, func(p *corev1.Pod) { p.Namespace = namespace }))
			ls := objects.LocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = namespace })
			stored, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ls)
			if err != nil {
				t.Fatal(err)
			}
			stored["apiVersion"], stored["kind"] = v1alpha1.SchemeGroupVersion.String(), v1alpha1.Kind
			localServices = append(localServices, &unstructured.Unstructured{Object: stored})
		}
		kube := kubefake.NewClientset(all...)
		dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				LocalServiceResource: "LocalServiceList",
			}, localServices...)
		var tried, opened sync.Map // by namespace
		opened.Store("a", true)
		kube.PrependReactor("list", "*", func(a core.Action) (bool, runtime.Object, error) {
			if _, isOpen := opened.Load(a.GetNamespace()); isOpen || a.GetNamespace() == "" {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
		})
		kube.PrependReactor("list", "services", func(a core.Action) (bool, runtime.Object, error) {
			_, wasTried := tried.Swap(a.GetNamespace(), true)
			return !wasTried, nil, errors.New("busy") // Services come later than the rest.
		})
		c := newCachesOf(t, kube, dynamic, "a", "b")
		var reported []string
		c.LocalServices.OnChange(func(_, after *v1alpha1.LocalService) {
			if c.Services.Get(after.Namespace, "service") == nil {
				t.Errorf("the LocalService of %s is reported before its Services", after.Namespace)
			}
			reported = append(reported, after.Namespace)
		})
		want := func(namespaces ...string) {
			t.Helper()
			time.Sleep(time.Minute) // fake time: client-go polls for synced caches, and tries again
			synctest.Wait()
			if !slices.Equal(reported, namespaces) {
				t.Errorf("the LocalServices of %v were reported, want %v", reported, namespaces)
			}
			for _, namespace := range []string{"a", "b", "c"} {
				want := slices.Contains(namespaces, namespace)
				pods := c.Pods.Unlabelled(namespace)
				if got := c.LocalServices.Get(namespace, "demo") != nil; got != want {
					t.Errorf("the LocalService of %s is known: %v, want %v", namespace, got, want)
				}
				if got := c.Services.Get(namespace, "service") != nil; got != want {
					t.Errorf("the Service of %s is known: %v, want %v", namespace, got, want)
				}
				if got := len(pods) == 1 && c.Pods.Get(namespace, "pod") != nil; got != want {
					t.Errorf("the pod of %s is known: %v, want %v", namespace, got, want)
				}
			}
			n := len(namespaces)
			if keys := slices.Collect(c.LocalServices.Keys()); len(keys) != n {
				t.Errorf("the keys of LocalServices are %v", keys)
			}
			if pods := slices.Collect(c.Pods.All()); len(pods) != n {
				t.Errorf("there are %d pods, want %d", len(pods), n)
			}
		}
		wait := c.Start(t.Context())
		t.Cleanup(wait)
		if !c.WaitForSync(t.Context()) {
			t.Fatal("the caches have not synced")
		}
		want("a")
		opened.Store("b", true)
		tried.Delete("b")
		want("a", "b")
		for _, actions := range [][]core.Action{kube.Actions(), dynamic.Actions()} {
			for _, action := range actions {
				isDiscovery := action.GetResource().Resource == "resource"
				if namespace := action.GetNamespace(); namespace != "a" && namespace != "b" && !isDiscovery {
					t.Errorf("asked for %s in namespace %q", action.GetResource().Resource, namespace)
				}
			}
		}
	})
}

// Package owner reads by which labels the owners of pods select them.
package owner

import (
	"context"
	"errors"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// ErrUnknownKind is returned for owners whose kind is not one of Kubernetes' own.
var ErrUnknownKind = errors.New("how objects of this kind select pods is not known")

// SelectorKeys returns the keys of the labels by which the owner of pods in a namespace selects them. It reads the
// owner from the API server. A later object of the same name does not count as the owner.
func SelectorKeys(ctx context.Context, kube kubernetes.Interface, namespace string, ref *metav1.OwnerReference) (
	[]string, error) {
	apps := kube.AppsV1()
	// Other groups have kinds of these names, too.
	switch schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind().String() {
	case "Node":
		return []string{}, nil // A node owns the mirror pods of its static pods, and selects none.
	case "ReplicaSet.apps":
		return read(ctx, apps.ReplicaSets(namespace), ref,
			func(o *appsv1.ReplicaSet) *metav1.LabelSelector { return o.Spec.Selector })
	case "DaemonSet.apps":
		return read(ctx, apps.DaemonSets(namespace), ref,
			func(o *appsv1.DaemonSet) *metav1.LabelSelector { return o.Spec.Selector })
	case "StatefulSet.apps":
		return read(ctx, apps.StatefulSets(namespace), ref,
			func(o *appsv1.StatefulSet) *metav1.LabelSelector { return o.Spec.Selector })
	case "Job.batch":
		return read(ctx, kube.BatchV1().Jobs(namespace), ref,
			func(o *batchv1.Job) *metav1.LabelSelector { return o.Spec.Selector })
	case "ReplicationController":
		return read(ctx, kube.CoreV1().ReplicationControllers(namespace), ref,
			func(o *corev1.ReplicationController) *metav1.LabelSelector {
				return &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
			})
	}
	return nil, ErrUnknownKind
}

// getter reads one object. All clients implement it.
type getter[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// read reads an owner, and returns the keys of its selector.
func read[T metav1.Object](ctx context.Context, client getter[T], ref *metav1.OwnerReference,
	selector func(T) *metav1.LabelSelector) ([]string, error) {
	gone := apierrors.NewNotFound(corev1.Resource(ref.Kind), ref.Name)
	if len(content.IsPathSegmentName(ref.Name)) > 0 {
		return nil, gone // The API server does not check the names of owners. No object has one that is invalid.
	}
	object, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, err
	case object.GetUID() != ref.UID:
		return nil, gone
	}
	return keysOf(selector(object)), nil
}

// keysOf returns the keys in a selector.
func keysOf(selector *metav1.LabelSelector) []string {
	keys := []string{}
	if selector != nil {
		keys = slices.AppendSeq(keys, maps.Keys(selector.MatchLabels))
		for _, expression := range selector.MatchExpressions {
			keys = append(keys, expression.Key)
		}
	}
	return keys
}

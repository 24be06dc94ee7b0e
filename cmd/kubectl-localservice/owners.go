package main

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

const (
	// ownerTimeout is for one read of an owner: the nodes are not shown before it ends.
	ownerTimeout = 5 * time.Second
	// ownerRetry is after how long an owner is read again if it could not be read, or if its selector can be changed.
	ownerRetry = time.Minute
)

// owners reads the selectors of the objects that control pods, with the permissions of the user, and keeps their keys.
// In most kinds a selector cannot be changed, so that each object is read once.
type owners struct {
	kube kubernetes.Interface

	mu    sync.Mutex
	known map[string]ownerKeys // by UID; failures by namespace and kind
}

// ownerKeys are the keys in the selector of an owner, nil if they are not known.
type ownerKeys struct {
	keys  []string
	until time.Time // zero for ever, because the selector cannot be changed
}

// selectorKeys returns the keys in the selector of an owner, nil if it cannot be read.
func (o *owners) selectorKeys(ctx context.Context, namespace string, ref *metav1.OwnerReference) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	uid, all := string(ref.UID), namespace+"/"+kind.String()
	for _, key := range []string{uid, all} {
		if known, found := o.known[key]; found && (known.until.IsZero() || time.Now().Before(known.until)) {
			return known.keys
		}
	}
	reading, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	selector, err := o.read(reading, namespace, kind.GroupKind(), ref)
	if ctx.Err() != nil {
		return nil // That says nothing about the owner.
	}
	key, read := uid, ownerKeys{keys: keysOf(selector)}
	if err != nil || kind.Kind == "ReplicationController" {
		read.until = time.Now().Add(ownerRetry)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		key = all // Whoever may not read one owner may not read the others: that would be a request for each.
	}
	o.known[key] = read
	return read.keys
}

// read reads the selector of an owner, nil if its kind is not known. Other groups have kinds of these names, too.
func (o *owners) read(ctx context.Context, namespace string, kind schema.GroupKind,
	ref *metav1.OwnerReference) (*metav1.LabelSelector, error) {
	apps := o.kube.AppsV1()
	switch kind {
	case corev1.SchemeGroupVersion.WithKind("Node").GroupKind():
		return &metav1.LabelSelector{}, nil // It has made the pod of a static one, and selects none.
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind():
		return selectorIn(ctx, apps.ReplicaSets(namespace), ref,
			func(o *appsv1.ReplicaSet) *metav1.LabelSelector { return o.Spec.Selector })
	case appsv1.SchemeGroupVersion.WithKind("DaemonSet").GroupKind():
		return selectorIn(ctx, apps.DaemonSets(namespace), ref,
			func(o *appsv1.DaemonSet) *metav1.LabelSelector { return o.Spec.Selector })
	case appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind():
		return selectorIn(ctx, apps.StatefulSets(namespace), ref,
			func(o *appsv1.StatefulSet) *metav1.LabelSelector { return o.Spec.Selector })
	case corev1.SchemeGroupVersion.WithKind("ReplicationController").GroupKind():
		return selectorIn(ctx, o.kube.CoreV1().ReplicationControllers(namespace), ref,
			func(o *corev1.ReplicationController) *metav1.LabelSelector {
				return &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
			})
	case batchv1.SchemeGroupVersion.WithKind("Job").GroupKind():
		return selectorIn(ctx, o.kube.BatchV1().Jobs(namespace), ref,
			func(o *batchv1.Job) *metav1.LabelSelector { return o.Spec.Selector })
	}
	return nil, nil
}

// getter reads one object, as all clients do.
type getter[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// selectorIn reads an owner, and returns its selector. A later object of the same name is not the owner.
func selectorIn[T metav1.Object](ctx context.Context, client getter[T], ref *metav1.OwnerReference,
	selector func(T) *metav1.LabelSelector) (*metav1.LabelSelector, error) {
	object, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil || object.GetUID() != ref.UID {
		return nil, err
	}
	return selector(object), nil
}

// keysOf returns the keys that a selector mentions, nil if there is none.
func keysOf(selector *metav1.LabelSelector) []string {
	if selector == nil {
		return nil
	}
	keys := []string{}
	for key := range selector.MatchLabels {
		keys = append(keys, key)
	}
	for _, expression := range selector.MatchExpressions {
		keys = append(keys, expression.Key)
	}
	return keys
}

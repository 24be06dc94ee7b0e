package main

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/internal/owner"
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
	uid, all := string(ref.UID), namespace+"/"+ref.APIVersion+"/"+ref.Kind
	for _, key := range []string{uid, all} {
		if known, found := o.known[key]; found && (known.until.IsZero() || time.Now().Before(known.until)) {
			return known.keys
		}
	}
	reading, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	keys, err := owner.SelectorKeys(reading, o.kube, namespace, ref)
	if ctx.Err() != nil {
		return nil // That says nothing about the owner.
	}
	key, read := uid, ownerKeys{keys: keys}
	if err != nil || ref.Kind == "ReplicationController" {
		read.until = time.Now().Add(ownerRetry)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		key = all // Whoever may not read one owner may not read the others: that would be a request for each.
	}
	o.known[key] = read
	return read.keys
}

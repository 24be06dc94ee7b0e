package writer

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// endpointsField is what is contested of an EndpointSlice.
const endpointsField = "endpoints"

// Slices makes the changes of the EndpointSlices that have hostnames.
type Slices struct {
	kube   kubernetes.Interface
	writer *Writer
	wrote  func(*discoveryv1.EndpointSlice)
	// contested has what was wanted, and stored in another way, by the UID of the EndpointSlice.
	contested *utilcache.LRUExpireCache
}

// NewSlices makes Slices. They take turns with Services. wrote is told what the API server answers.
func NewSlices(kube kubernetes.Interface, services *Services, wrote func(*discoveryv1.EndpointSlice)) *Slices {
	return &Slices{kube: kube, writer: services.writer, wrote: wrote,
		contested: utilcache.NewLRUExpireCache(maxContested)}
}

// IsContested reports whether an EndpointSlice was stored in another way than it was written, when it was written as it
// is wanted now. Somebody, such as an admission webhook, would have it so again.
func (s *Slices) IsContested(current plan.EndpointSlice, want plan.SliceSum) bool {
	stored, known := s.contested.Get(current.GetUID())
	return known && stored.(plan.SliceSum).Same(want)
}

// isStored reports whether what is stored is what was asked for, and remembers it if not.
func (s *Slices) isStored(asked, stored *discoveryv1.EndpointSlice) bool {
	want, err1 := plan.SumOf(asked)
	have, err2 := plan.SumOf(stored)
	if err1 != nil || err2 != nil || have.Same(want) {
		return true // What cannot be encoded was not sent.
	}
	want.Endpoints = nil
	s.contested.Add(stored.UID, want, ContestedFor)
	return false
}

// Write makes changes. copyOf returns the EndpointSlice to write. next is called before each write; when it returns an
// error, no other is begun. What is published comes before what goes.
func (s *Slices) Write(ctx context.Context, namespace string, changes []plan.CopyChange,
	copyOf func(*plan.CopyChange) *discoveryv1.EndpointSlice, next func() error) Outcome {
	out := Outcome{Contested: sets.Set[string]{}}
	var mu sync.Mutex
	rand.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	for _, deletions := range []bool{false, true} {
		var batch []plan.CopyChange
		for _, change := range changes {
			if change.Action != plan.Wait && (change.Action == plan.Delete) == deletions {
				batch = append(batch, change)
			}
		}
		failed, err := s.writer.Each(ctx, namespace, len(batch), next, func(i int) error {
			asked, written, err := s.write(ctx, namespace, &batch[i], copyOf)
			if written == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.slices = append(out.slices, written)
			if !s.isStored(asked, written) {
				out.Contested.Insert(endpointsField)
			}
			return nil
		})
		out.addFailures(failed)
		if err != nil && !errors.Is(err, ErrRefused) {
			out.Stopped = err
			return out
		}
	}
	return out
}

func (s *Slices) write(ctx context.Context, namespace string, change *plan.CopyChange,
	copyOf func(*plan.CopyChange) *discoveryv1.EndpointSlice) (asked, written *discoveryv1.EndpointSlice, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := s.kube.DiscoveryV1().EndpointSlices(namespace)
	switch change.Action {
	case plan.Create:
		asked = copyOf(change)
		written, err = create(ctx, client, asked)
	case plan.Update:
		asked = copyOf(change)
		written, err = client.Update(ctx, asked, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	default:
		uid, version := change.Current.GetUID(), change.Current.GetResourceVersion()
		err = client.Delete(ctx, change.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if apierrors.IsNotFound(err) {
			err = nil // It has gone already.
		}
	}
	metrics.SliceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err != nil {
		return nil, nil, &status.WriteError{Action: change.Action, Kind: status.EndpointSliceKind, Namespace: namespace,
			Name: change.Name, Err: err}
	}
	if written != nil {
		s.wrote(written)
	}
	return asked, written, nil
}

// create creates an EndpointSlice, or takes the one that is there with its name, if that is of the same Service: the
// cache does not see one that has lost its labels.
func create(ctx context.Context, client typeddiscoveryv1.EndpointSliceInterface,
	slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	written, err := client.Create(ctx, slice, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return written, err
	}
	live, getErr := client.Get(ctx, slice.Name, metav1.GetOptions{})
	if getErr != nil {
		return nil, err // It may have gone meanwhile.
	}
	if plan.ControllerOf(live) != plan.ControllerOf(slice) {
		return nil, errors.New("the name is taken by an EndpointSlice that this LocalService does not control: delete " +
			"that")
	}
	slice.UID, slice.ResourceVersion = live.UID, live.ResourceVersion
	return client.Update(ctx, slice, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
}

package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// EndpointsField is what is contested of an EndpointSlice.
const EndpointsField = "endpoints"

// Slices makes the changes of the EndpointSlices that have hostnames.
type Slices struct {
	kube    kubernetes.Interface
	writer  *Writer
	wrote   func(metav1.Object)
	shuffle func(n int, swap func(i, j int))
	// contested has what was wanted and what was stored instead, by contested EndpointSlice.
	contested *utilcache.LRUExpireCache
	// refused has the errors of writes that were refused, by attempt: an EndpointSlice that is refused does not hold up
	// the others, which follow the pods all the time, and is not tried again with each of them.
	refused *utilcache.LRUExpireCache
}

const (
	// RefusedFor is how long an EndpointSlice that was refused is not tried again.
	RefusedFor = time.Minute
	// Of more than maxRemembered EndpointSlices some are forgotten.
	maxRemembered = 10000
)

// attempt is a write of an EndpointSlice but for its endpoints. If it is refused, another spec, or other ports, may be
// not.
type attempt struct {
	namespace, name string
	generation      int64
	rest            uint64
}

func attemptOf(ls *v1alpha1.LocalService, change *plan.CopyChange) attempt {
	a := attempt{namespace: ls.Namespace, name: change.Name, generation: ls.Generation}
	if change.Source != nil {
		a.rest = change.Source.Sum().Rest
	}
	return a
}

// contestedSlice is an EndpointSlice, and the generation of the LocalService for which it was written. Another spec may
// be stored as it is.
type contestedSlice struct {
	uid        types.UID
	generation int64
}

// contest is what was wanted of an EndpointSlice and what was stored.
type contest struct{ want, have plan.SliceSum }

// NewSlices makes Slices. They take turns with Services. wrote is told what the API server answers.
func NewSlices(kube kubernetes.Interface, services *Services, wrote func(metav1.Object)) *Slices {
	return &Slices{kube: kube, writer: services.writer, shuffle: services.shuffle, wrote: wrote,
		contested: utilcache.NewLRUExpireCache(maxRemembered), refused: utilcache.NewLRUExpireCache(maxRemembered)}
}

// IsContested reports whether an EndpointSlice was stored in another way than it was written, when it was written as it
// is wanted now. Somebody, such as an admission webhook, would have it so again.
func (s *Slices) IsContested(ls *v1alpha1.LocalService, current plan.EndpointSlice, want plan.SliceSum) bool {
	stored, known := s.contested.Get(contestedSlice{current.GetUID(), ls.Generation})
	return known && stored.(contest).want.Same(want) && stored.(contest).have.Same(current.Sum())
}

// HasWrites reports whether Write would write anything.
func (s *Slices) HasWrites(ls *v1alpha1.LocalService, changes []plan.CopyChange) bool {
	published, deletions, _ := s.split(ls, changes)
	return len(published)+len(deletions) > 0
}

// split returns the changes to make: what is published, and what goes, which stays if any of the others is refused. It
// leaves out what was refused a moment ago, of which it returns the errors.
func (s *Slices) split(ls *v1alpha1.LocalService, changes []plan.CopyChange) (published, deletions []plan.CopyChange,
	refused []error) {
	isHeld := false
	for _, change := range changes {
		err, isRefused := s.refused.Get(attemptOf(ls, &change))
		isDeletion := change.Action == plan.Delete
		switch {
		case change.Action == plan.Wait:
		case isRefused:
			refused = append(refused, err.(error))
			isHeld = isHeld || !isDeletion
		case isDeletion:
			deletions = append(deletions, change)
		default:
			published = append(published, change)
		}
	}
	if isHeld {
		deletions = nil
	}
	return published, deletions, refused
}

// isStored reports whether what is stored is what was asked for, and remembers it if not.
func (s *Slices) isStored(ls *v1alpha1.LocalService, asked, stored *discoveryv1.EndpointSlice) bool {
	want, err1 := plan.SumOf(asked)
	have, err2 := plan.SumOf(stored)
	if err1 != nil || err2 != nil || have.Same(want) {
		return true // What cannot be encoded was not sent.
	}
	want.Endpoints, have.Endpoints = nil, nil
	s.contested.Add(contestedSlice{stored.UID, ls.Generation}, contest{want, have}, ContestedFor)
	return false
}

// writtenSlice is an EndpointSlice that was written, and its resource version since then.
type writtenSlice struct{ name, resourceVersion string }

// Write makes changes. copyOf returns the EndpointSlice to write. next is called before each write; when it returns an
// error, no other is begun. What is published comes before what goes, which stays if anything is refused.
func (s *Slices) Write(ctx context.Context, ls *v1alpha1.LocalService, changes []plan.CopyChange,
	copyOf func(*plan.CopyChange) *discoveryv1.EndpointSlice, next func() error) Outcome {
	out := Outcome{Contested: sets.Set[string]{}}
	var mu sync.Mutex
	s.shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	published, deletions, refused := s.split(ls, changes)
	out.Refused = refused
	for _, batch := range [][]plan.CopyChange{published, deletions} {
		failed, err := s.writer.Each(ctx, ls.Namespace, len(batch), next, func(i int) error {
			asked, written, err := s.write(ctx, ls, &batch[i], copyOf)
			if written == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.slices = append(out.slices, writtenSlice{written.Name, written.ResourceVersion})
			if !s.isStored(ls, asked, written) {
				out.Contested.Insert(EndpointsField)
			}
			return nil
		})
		out.addFailures(failed)
		if slices.ContainsFunc(failed, isTerminating) {
			err = ErrNamespaceTerminating
		}
		if err != nil && !errors.Is(err, ErrRefused) {
			out.Stopped = err
		}
		if len(failed) > 0 || out.Stopped != nil {
			break
		}
	}
	return out
}

// WhileBackingOff is the error of a sync that leaves out what was refused before: Stale if others of its writes may
// succeed in a moment.
func (o *Outcome) WhileBackingOff() error {
	var errs []error
	for _, err := range slices.Concat(o.Stale, o.Refused) {
		if isStale(err) || mayPass(err) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return reconcile.Stale(errors.Join(errs...))
	}
	return reconcile.ErrBackingOff
}

func (s *Slices) write(ctx context.Context, ls *v1alpha1.LocalService, change *plan.CopyChange,
	copyOf func(*plan.CopyChange) *discoveryv1.EndpointSlice) (asked, written *discoveryv1.EndpointSlice, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := s.kube.DiscoveryV1().EndpointSlices(ls.Namespace)
	switch change.Action {
	case plan.Create:
		asked = copyOf(change)
		written, err = create(ctx, client, asked)
	case plan.Update:
		asked = copyOf(change)
		written, err = client.Update(ctx, asked, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	default:
		if err = s.isGone(ctx, client, change); err != nil {
			break
		}
		uid, version := change.Current.GetUID(), change.Current.GetResourceVersion()
		err = client.Delete(ctx, change.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if apierrors.IsNotFound(err) {
			err = nil // It has gone already.
		}
	}
	if err == nil && written != nil && !isInSight(written, ls.Name) {
		err = reconcile.Refused(fmt.Errorf("it was stored without the label %s, or its owner, by which it is known "+
			"again: exempt it from the admission webhook or policy that takes them away", v1alpha1.HostnamesLabelKey))
	}
	metrics.SliceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if err != nil {
		err := &status.WriteError{Action: change.Action, Kind: status.EndpointSliceKind,
			Namespace: ls.Namespace, Name: change.Name, Err: err}
		if !isStale(err) && !mayPass(err) {
			s.refused.Add(attemptOf(ls, change), err, RefusedFor)
		}
		return nil, nil, err
	}
	if written != nil {
		s.wrote(written)
	}
	return asked, written, nil
}

// isInSight reports whether the cache sees an EndpointSlice as a copy of a LocalService.
func isInSight(slice *discoveryv1.EndpointSlice, localService string) bool {
	_, isLabelled := slice.Labels[v1alpha1.HostnamesLabelKey]
	return isLabelled && plan.CopyOf(slice) == localService
}

func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isGone returns nil if the API server knows nothing of what an EndpointSlice was copied from: the cache does not see
// one that has lost its labels.
func (s *Slices) isGone(ctx context.Context, client typeddiscoveryv1.EndpointSliceInterface,
	change *plan.CopyChange) error {
	source, isCopy := plan.SourceName(change.Name)
	if !isCopy {
		return nil
	}
	_, err := client.Get(ctx, source, metav1.GetOptions{})
	if err == nil {
		return reconcile.Stale(errors.New("what it was copied from is there"))
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("is what it was copied from gone? %w", err)
}

// IsThere returns nil if the API server has a Service as the cache has it. Its error is Stale if that is gone. It asks for
// a list, which is permitted anyway.
func (s *Slices) IsThere(ctx context.Context, service plan.Service) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	list, err := s.kube.CoreV1().Services(service.GetNamespace()).List(ctx,
		metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, service.GetName()).String()})
	if err != nil {
		return fmt.Errorf("is Service %s there? %w", service.GetName(), err)
	}
	if !slices.ContainsFunc(list.Items, func(live corev1.Service) bool { return live.UID == service.GetUID() }) {
		return reconcile.Stale(fmt.Errorf("the Service %s is gone", service.GetName()))
	}
	return nil
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
	if apierrors.IsNotFound(getErr) {
		return nil, err // It has gone meanwhile.
	} else if getErr != nil {
		return nil, fmt.Errorf("look at the EndpointSlice that has this name: %w", getErr)
	}
	if !plan.IsCopy(plan.SliceFromAPI(live), slice.OwnerReferences[0].UID) {
		return nil, reconcile.Refused(errors.New("the name is taken by an EndpointSlice that this LocalService does " +
			"not control: delete that"))
	}
	slice.UID, slice.ResourceVersion = live.UID, live.ResourceVersion
	return client.Update(ctx, slice, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
}

package writer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// sliceAttempt identifies the write of an EndpointSlice.
func sliceAttempt(ls *v1alpha1.LocalService, name string) Attempt {
	return Attempt{Owner: ls.UID, Generation: ls.Generation, Name: "EndpointSlice/" + name}
}

// refusedCopies returns the errors of the changes of EndpointSlices whose last attempt the API server refused.
func (w *Writer) refusedCopies(ls *v1alpha1.LocalService, changes []plan.CopyChange) (refused []error) {
	for i := range changes {
		if last := w.Refusals.Get(sliceAttempt(ls, changes[i].Name)); last.IsReported() {
			refused = append(refused, last.Err)
		}
	}
	return refused
}

// WriteCopy makes a change of the names of a LocalService, unless it still waits after a refusal. It returns how long a
// refused change has to wait, and whether there is something to report: the change was refused, or no longer is. It
// returns an error only if that may pass.
func (w *Writer) WriteCopy(ctx context.Context, ls *v1alpha1.LocalService, change *plan.CopyChange,
	names *plan.Names) (retryAfter time.Duration, report bool, err error) {
	attempt := sliceAttempt(ls, change.Name)
	if after := w.Refusals.Get(attempt).left(change.Fields, change.Sum); after > 0 {
		return after, false, nil
	}
	if undone := w.Refusals.Undone(attempt, change.Fields, change.Sum); len(undone) > 0 {
		last, err := w.addUndone(attempt, status.EndpointSliceKind+" "+change.Name, undone,
			w.setterOf(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), change.Current,
				[]string{"endpoints"}, []string{"ports"}, []string{"metadata"}))
		return last.retryAfter(), err == nil, err
	}
	before := w.Refusals.Get(attempt)
	written, err := w.writeCopy(ctx, ls, change, names)
	metrics.SliceWrites.WithLabelValues(string(change.Action), metrics.Result(err)).Inc()
	if change.Action == plan.Create && apierrors.IsAlreadyExists(err) {
		var update *plan.CopyChange
		if update, err = w.updateOf(ctx, ls, change, names, err); err == nil {
			return w.WriteCopy(ctx, ls, update, names)
		}
	}
	if written != nil {
		w.Observed.Wrote(SliceKey(ls.Namespace, change.Name), w.Caches.HostnameSlices, written.ResourceVersion)
	}
	switch {
	case err == nil && change.Action != plan.Update:
		w.Refusals.Remove(attempt)
	case written != nil:
		w.Refusals.Made(attempt, change.Fields, change.Sum)
	}
	if err == nil {
		return 0, before.IsReported(), nil
	}
	failure := &status.WriteError{Action: change.Action, Kind: status.EndpointSliceKind, Namespace: ls.Namespace,
		Name: change.Name, Err: err}
	retryAfter, report, err = w.Refusals.AfterFailure(attempt, failure)
	if report {
		klog.FromContext(ctx).Error(failure, "EndpointSlice refused, trying again later",
			"localService", klog.KObj(ls), "after", retryAfter)
	}
	return retryAfter, report, err
}

// SliceKey returns the key under which an EndpointSlice is synced: for a copy, that of its source; otherwise its own.
func SliceKey(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: plan.SourceName(name)}
}

// writeCopy makes a change, and returns the EndpointSlice as the API server stored it; nil if it has stored none. If it
// has stored something else, the error says so.
func (w *Writer) writeCopy(ctx context.Context, ls *v1alpha1.LocalService, change *plan.CopyChange,
	names *plan.Names) (written *discoveryv1.EndpointSlice, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	client := w.Kube.DiscoveryV1().EndpointSlices(ls.Namespace)
	if change.Action != plan.Update {
		if err := w.confirm(ctx, ls); err != nil {
			return nil, err
		}
	}
	if change.Action == plan.Delete {
		return nil, w.deleteCopy(ctx, client, change, names)
	}
	asked := names.Copy(change)
	if change.Action == plan.Update {
		written, err = client.Update(ctx, asked, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	} else if _, err = w.liveService(ctx, names.Published); err == nil {
		written, err = client.Create(ctx, asked, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	}
	if err != nil {
		return nil, err // A client may return an object with an error.
	}
	if fields := names.Mismatches(asked, written); len(fields) > 0 {
		err = &status.ContestedError{Object: status.EndpointSliceKind + " " + change.Name, Fields: fields}
	}
	return written, err
}

// deleteCopy deletes an EndpointSlice, unless that would be made again: while the Source is gone, or the Published
// Service has a selector, Kubernetes recreates what they publish. The cache does not have a source that has lost its
// labels, so that of a copy must be gone from the API server.
func (w *Writer) deleteCopy(ctx context.Context, client typeddiscoveryv1.EndpointSliceInterface,
	change *plan.CopyChange, names *plan.Names) error {
	if _, err := w.liveService(ctx, names.Source); err != nil {
		return err
	}
	if plan.ManagerOf(change.Current) == plan.KubernetesSliceManager {
		published, err := w.liveService(ctx, names.Published)
		if err == nil && len(published.Spec.Selector) > 0 {
			err = staleError("the Service %s has a selector", published.Name)
		}
		if err != nil {
			return err
		}
	}
	if source := plan.SourceName(change.Name); source != change.Name {
		if _, err := client.Get(ctx, source, metav1.GetOptions{}); err == nil {
			return staleError("what it was copied from is there")
		} else if !isAbsent(err) {
			return fmt.Errorf("check whether what it was copied from is gone: %w", err)
		}
	}
	err := client.Delete(ctx, change.Name, ifUnchanged(change.Current))
	if isAbsent(err) {
		return nil // It was deleted already.
	}
	return err
}

// liveService returns a Service from the API server. It returns a stale error if the Service differs from the one in
// the cache, or is being deleted: the garbage collector would delete what belongs to it as often as it is created. It
// uses a list request, which is permitted anyway.
func (w *Writer) liveService(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	list, err := w.Kube.CoreV1().Services(service.GetNamespace()).List(ctx,
		metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, service.GetName()).String()})
	if err != nil {
		return nil, fmt.Errorf("check whether Service %s exists: %w", service.GetName(), err)
	}
	isSame := func(live corev1.Service) bool { return live.UID == service.UID && live.DeletionTimestamp == nil }
	i := slices.IndexFunc(list.Items, isSame)
	if i < 0 {
		return nil, staleError("the Service %s is gone", service.GetName())
	}
	return &list.Items[i], nil
}

// updateOf returns the update that takes the place of a creation whose name exists, if that is a copy for the same
// Service: the cache does not have a copy that has lost some of its labels.
func (w *Writer) updateOf(ctx context.Context, ls *v1alpha1.LocalService, creation *plan.CopyChange,
	names *plan.Names, exists error) (*plan.CopyChange, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	live, err := w.Kube.DiscoveryV1().EndpointSlices(ls.Namespace).Get(ctx, creation.Name, metav1.GetOptions{})
	switch {
	case isAbsent(err):
		return nil, exists // It was deleted meanwhile.
	case err != nil:
		return nil, fmt.Errorf("look at the EndpointSlice that has this name: %w", err)
	case !plan.IsCopy(live, names.Published.UID):
		return nil, refuse("the name is taken by an EndpointSlice that this controller does not manage for this " +
			"LocalService: delete that, or have its manager use another name")
	}
	update := *creation
	update.Action, update.Current = plan.Update, live
	update.Fields = names.Mismatches(names.Copy(creation), live)
	return &update, nil
}

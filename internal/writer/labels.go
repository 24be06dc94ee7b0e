package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/owner"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// LabelAttempt identifies the write of a pod's label.
func LabelAttempt(p *cache.Pod) Attempt { return Attempt{Owner: p.GetUID()} }

// WriteLabel sets the node label of a pod, whose key is given. If the write was refused, it returns how long to wait
// before the next attempt, and the refusal if it should be reported. It returns an error only if that may pass.
func (w *Writer) WriteLabel(ctx context.Context, p *cache.Pod, key string) (retryAfter time.Duration, refusal,
	err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	attempt := LabelAttempt(p)
	if undone := w.Refusals.Undone(attempt, []string{key}, 0); len(undone) > 0 {
		last, err := w.addUndone(attempt, "Pod "+p.GetName(), undone,
			w.setterOf(ctx, corev1.SchemeGroupVersion.WithResource("pods"), p, []string{"metadata", "labels", key}))
		return last.retryAfter(), last.Err, err
	}
	isAgain := w.Observed.SinceWrite(cache.KeyOf(p), w.Caches.Pods) < soon
	written, err := w.writeLabel(ctx, p, key)
	if err == nil {
		if isAgain { // The first label of a pod is like a creation.
			w.Refusals.Made(attempt, []string{key}, 0)
		}
		w.Observed.Wrote(cache.KeyOf(p), w.Caches.Pods, written.ResourceVersion)
		return 0, nil, nil
	}
	failure := fmt.Errorf("set the label %s of pod %s: %w", key, cache.KeyOf(p), err)
	if isGone(err) { // The pod is gone. If the cache keeps it, a webhook answered 404, so back off.
		gone := w.Refusals.Add(attempt, failure)
		return gone.retryAfter(), nil, nil
	}
	retryAfter, isReported, failure := w.Refusals.AfterFailure(attempt, failure)
	if isReported {
		refusal = err
	}
	return retryAfter, refusal, failure
}

// writeLabel patches the node label of a pod. It adds a missing label. It changes another value unless the pod's
// controller selects, or may select, pods by it: the controller would release the pod and create another, without
// end. If Kubernetes stores another value than was written, the write counts as refused.
func (w *Writer) writeLabel(ctx context.Context, p *cache.Pod, key string) (*corev1.Pod, error) {
	value := naming.NodeLabelValue(p.Node())
	meta := map[string]any{"uid": p.GetUID(), "labels": map[string]string{key: value}}
	if current, exists := p.Labels().Lookup(key); exists {
		if err := w.checkMayChange(ctx, p, key, current); err != nil {
			return nil, err
		}
		meta["resourceVersion"] = p.GetResourceVersion() // Since then, something may have adopted the pod.
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, err
	}
	written, err := w.Kube.CoreV1().Pods(p.GetNamespace()).Patch(ctx, p.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	if err == nil && written.Labels[key] != value {
		err = refuse("an admission webhook or policy removes it, or sets it to something else (%q): exempt the label "+
			"%s from it", written.Labels[key], key)
	}
	if hasCause(err, func(cause metav1.StatusCause) bool { return strings.HasPrefix(cause.Field, "spec") }) {
		err = refuse("an admission webhook or policy changes the pod in the same request, as Kubernetes does not allow: "+
			"exempt the controller's service account from it: %w", err)
	}
	metrics.PodLabelWrites.WithLabelValues(metrics.Result(err)).Inc()
	return written, err
}

// checkMayChange returns an error if the pod's controller selects, or may select, the pod by the current value of its
// node label.
func (w *Writer) checkMayChange(ctx context.Context, p *cache.Pod, key, current string) error {
	ref := p.Controller()
	if ref == nil {
		return nil
	}
	name := words.Printable(ref.Kind + " " + ref.Name) // Anybody may write an owner.
	const advice = "take the label out of that selector, or start the controller with another -node-label-key"
	keys, err := owner.SelectorKeys(ctx, w.Kube, p.GetNamespace(), ref)
	switch {
	case errors.Is(err, owner.ErrUnknownKind):
		return refuse("%s (%s) may select its pods by %s=%s, so that stays: %s", name, words.Printable(ref.APIVersion),
			key, current, advice)
	case err != nil && ClassOf(err) == Transient:
		return fmt.Errorf("read %s: %w", name, err)
	case err != nil:
		return refuse("%s cannot be read, and may select its pods by %s=%s, so that stays: %s: %w", name, key,
			current, advice, err)
	case slices.Contains(keys, key):
		return refuse("%s selects its pods by %s=%s, so that stays: %s", name, key, current, advice)
	}
	return nil
}

// isGone reports whether a pod was not labelled because it was deleted, or because another pod has its name.
func isGone(err error) bool {
	isUID := func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" }
	return isAbsent(err) || hasCause(err, isUID)
}

// hasCause reports whether an error has such a cause.
func hasCause(err error, is func(metav1.StatusCause) bool) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Details != nil && slices.ContainsFunc(status.ErrStatus.Details.Causes, is)
}

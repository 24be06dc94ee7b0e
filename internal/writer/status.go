package writer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	apply "github.com/localservice-dev/local-service-controller/pkg/generated/applyconfiguration/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// NumbersInterval is how often at most a status is written in which only numbers differ, as while nodes join.
const NumbersInterval = time.Second

const (
	// statusConcurrency is how many statuses are written at a time for a namespace, and one more for all: each costs
	// the API server as much as several Services, which somebody waits for.
	statusConcurrency = 2
	// statusPatience is how long a status waits for its turn at most, so that others that hang hold up nobody, and
	// progressPatience the same of one that is told while Services wait for it, and is left out then.
	statusPatience   = time.Second
	progressPatience = 10 * time.Millisecond
	// progressTimeout bounds the write of such a one.
	progressTimeout = time.Second
)

// Statuses writes the status of LocalServices.
type Statuses struct {
	client clientset.Interface
	writer *Writer
	cache  *cache.LocalServices
	record func(regarding runtime.Object, eventType, reason, note string)
}

// NewStatuses makes Statuses. The conditions that have begun to need attention are recorded as events.
func NewStatuses(client clientset.Interface, localServices *cache.LocalServices,
	record func(regarding runtime.Object, eventType, reason, note string)) *Statuses {
	return &Statuses{client: client, writer: New(statusConcurrency), cache: localServices, record: record}
}

// Write writes the status that tells a report about a LocalService, if it is another than that has. If it is too early
// for that, it returns how long to wait.
func (s *Statuses) Write(ctx context.Context, ls *v1alpha1.LocalService, report status.Report) (later time.Duration,
	err error) {
	return s.tell(ctx, ls, report, false)
}

// WriteProgress is Write for a report that another one follows. If too many statuses are being written, it leaves it.
func (s *Statuses) WriteProgress(ctx context.Context, ls *v1alpha1.LocalService, report status.Report) error {
	_, err := s.tell(ctx, ls, report, true)
	return err
}

func (s *Statuses) tell(ctx context.Context, ls *v1alpha1.LocalService, report status.Report,
	isProgress bool) (later time.Duration, err error) {
	generation := ls.Generation // The report is about this one.
	if newer := s.cache.Get(ls.Namespace, ls.Name); newer != nil && newer.UID == ls.UID {
		ls = newer
	}
	after := report.Status(ls.Status, generation)
	if status.Same(&ls.Status, &after) {
		return 0, nil
	}
	onlyNumbers := ls.Status.ObservedGeneration == generation &&
		len(status.Changed(ls.Status.Conditions, after.Conditions)) == 0
	if left := NumbersInterval - s.cache.SinceWrite(ls); onlyNumbers && left > 0 {
		if len(report.Refused) > 0 {
			return 0, nil // It is tried again anyway.
		}
		return left, nil
	}
	patience, timeout := statusPatience, Timeout
	if isProgress {
		patience, timeout = progressPatience, progressTimeout
	}
	release, hasTurn := s.turn(ctx, ls.Namespace, patience)
	defer release()
	if ctx.Err() != nil || isProgress && !hasTurn {
		return 0, ctx.Err()
	}
	for _, condition := range status.Warnings(ls.Status.Conditions, after.Conditions) {
		s.record(ls, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	written, err := s.write(ctx, ls, &after)
	if written != nil {
		s.cache.Wrote(written)
	}
	return 0, err
}

// turn waits for a turn of a namespace, but not for long. release is to be called in any case.
func (s *Statuses) turn(ctx context.Context, namespace string, patience time.Duration) (release func(), hasTurn bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	release, err := s.writer.await(ctx, namespace)
	if err != nil {
		return func() {}, false
	}
	return release, true
}

// write writes the status of a LocalService, and returns the LocalService as the API server has it then: nil if it has
// been deleted, of which the watch will tell.
func (s *Statuses) write(ctx context.Context, ls *v1alpha1.LocalService,
	after *v1alpha1.LocalServiceStatus) (*v1alpha1.LocalService, error) {
	// The UID keeps it from another LocalService of the same name.
	object := apply.LocalService(ls.Name, ls.Namespace).WithUID(ls.UID).WithStatus(applyConfiguration(after))
	written, err := s.client.LocalserviceV1alpha1().LocalServices(ls.Namespace).ApplyStatus(ctx, object,
		metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true})
	metrics.StatusWrites.WithLabelValues(metrics.Result(err)).Inc()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if apierrors.IsConflict(err) { // As of one that was deleted and made anew; or of an API server that is busy.
		return nil, reconcile.Stale(fmt.Errorf("write the status of LocalService %s/%s: %w", ls.Namespace, ls.Name, err))
	}
	if plan.IsUnreadable(ls) && !isUnanswered(err) {
		return nil, nil // The answer has the spec that cannot be decoded. The watch tells the status.
	}
	if err != nil {
		return nil, fmt.Errorf("write the status of LocalService %s/%s: %w", ls.Namespace, ls.Name, err)
	}
	return written, nil
}

// isUnanswered reports whether an error is not about the answer of the API server, but that there is none, or a no.
func isUnanswered(err error) bool {
	_, isStatus := errors.AsType[*apierrors.StatusError](err)
	_, isNetwork := errors.AsType[*url.Error](err)
	return isStatus || isNetwork || errors.Is(err, context.DeadlineExceeded)
}

func applyConfiguration(status *v1alpha1.LocalServiceStatus) *apply.LocalServiceStatusApplyConfiguration {
	out := apply.LocalServiceStatus().
		WithObservedGeneration(status.ObservedGeneration).
		WithNodes(status.Nodes).
		WithServices(status.Services).
		WithReadyNodes(status.ReadyNodes).
		WithReady(status.Ready)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		out.WithConditions(metav1apply.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).
			WithMessage(c.Message).WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
	}
	return out
}

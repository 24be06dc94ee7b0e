package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// A leader looks at the cluster once new policies have had the time to be in force, and then at intervals: shorter ones
// while the guard is not in force, or the schema lacks fields, so that a repair shows.
const firstLook, lookInterval, repairInterval = 5 * time.Second, time.Hour, time.Minute

// inspector looks whether the cluster is as the controller needs it, and writes what others should know into the Lease.
type inspector struct {
	coordinationv1client.LeaseInterface
	kube      kubernetes.Interface
	pods      *cache.Pods
	options   *Options
	soon      chan struct{}
	unguarded atomic.Value // of UnguardedAnnotationKey
}

// lookSoon makes the next look soon.
func (i *inspector) lookSoon() {
	select {
	case i.soon <- struct{}{}:
	default:
	}
}

// run looks until ctx is done. It calls stop if the CustomResourceDefinition lacks other fields than it did.
func (i *inspector) run(ctx context.Context, lacking []string, stop func(error)) {
	due := time.Now().Add(firstLook)
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.soon:
			if early := time.Now().Add(firstLook); early.Before(due) {
				due = early
			}
			continue
		case <-time.After(time.Until(due)):
		}
		pause := lookInterval
		if i.options.guard && !i.isGuarded(ctx) || len(lacking) > 0 {
			pause = repairInterval
		}
		due = time.Now().Add(pause)
		if now, err := lackingFields(ctx, i.kube); err == nil && !slices.Equal(now, lacking) {
			stop(fmt.Errorf("the CustomResourceDefinition lacks the fields %q now, and lacked %q before: this instance "+
				"stops, so that it is restarted and compares everything", now, lacking))
		}
	}
}

// isGuarded makes dry runs of what the guard must refuse, with each resource that it protects, and reports those that
// the API server accepts. With pods, it needs one.
func (i *inspector) isGuarded(ctx context.Context) bool {
	namespace := slices.Concat(i.options.Namespaces, []string{metav1.NamespaceDefault})[0]
	meta, dryRun := metav1.ObjectMeta{Name: v1alpha1.FieldManager + "-trial"}, []string{metav1.DryRunAll}
	accepted := []string{}
	try := func(resource string, err error) {
		if err == nil {
			accepted = append(accepted, resource)
		}
	}
	for pod := range i.pods.All() {
		_, err := i.kube.CoreV1().Pods(pod.GetNamespace()).Patch(ctx, pod.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"localservice.dev/trial":""}}}`), metav1.PatchOptions{DryRun: dryRun})
		try("pods", err)
		break
	}
	_, err := i.kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}, metav1.CreateOptions{DryRun: dryRun})
	try("services", err)
	_, err = i.kube.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: meta,
		AddressType: discoveryv1.AddressTypeIPv4}, metav1.CreateOptions{DryRun: dryRun})
	try("endpointslices", err)
	metrics.Unguarded.Set(float64(len(accepted)))
	unguarded := strings.Join(accepted, ",")
	if last := i.unguarded.Swap(unguarded); last != unguarded && unguarded != "" {
		klog.FromContext(ctx).Error(nil, "The guard is not in force for this account: whoever has its token can change "+
			"more than the controller does. Apply guard.yaml of the release (in the source artifacts/deploy, with Helm "+
			"guard.enabled) with the name of this account, or set -guard=false to do without", "resources", accepted)
	}
	return unguarded == ""
}

// Leases returns a client for the Lease.
func (i *inspector) Leases(string) coordinationv1client.LeaseInterface { return i }

// Update also writes which namespaces are watched, and what is not guarded.
func (i *inspector) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (
	*coordinationv1.Lease, error) {
	unguarded, _ := i.unguarded.Load().(string)
	namespaces := strings.Join(i.options.Namespaces, ",")
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.UnguardedAnnotationKey, unguarded)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.NamespacesAnnotationKey, namespaces)
	return i.LeaseInterface.Update(ctx, lease, opts)
}

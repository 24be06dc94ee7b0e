package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestReplacementIsRefused tests that a Service is not deleted if its successor would be refused, for whatever reason,
// even if the API server begins to refuse in the middle of a fan-out.
func TestReplacementIsRefused(t *testing.T) {
	t.Parallel()
	const nodes = 20
	for name, c := range map[string]struct {
		refuse  func(s *scene)
		to      change
		says    string
		refused string // in the names of those that are refused
	}{
		"a family that the cluster does not have": {func(*scene) {},
			func(ls *v1alpha1.LocalService) { ls.Spec.IPFamilies = []corev1.IPFamily{"IPv6"} }, "IPv6", ""},
		"a quota": {func(s *scene) { s.limitServices(nodes) }, framework.WithClusterIP, "exceeded quota", ""},
		"a policy for some": {func(s *scene) {
			s.deny("services", "CREATE", "!object.metadata.name.contains('-n01')",
				func(ctx context.Context, dryRun []string) error {
					service := framework.NewForeignService("x-n01", nil)
					_, err := s.ServiceClient().Create(ctx, service, metav1.CreateOptions{DryRun: dryRun})
					return err
				})
		}, framework.WithClusterIP, "refused by a policy", "-n01"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "replace")
			s.AddManyNodes(nodes)
			ls := s.CreateReady("demo")
			before := s.MustOwn(ls, nodes)
			c.refuse(s)
			s.ResetCount()
			s.Update("demo", c.to)
			s.WaitNotReady("demo", v1alpha1.ReasonWriteFailed, c.says)
			s.Eventually("it is tried again", func(context.Context) error {
				if n := len(s.Requests().Resource("services").Verb("create").Where(framework.Failed)); n < nodes/8 {
					return fmt.Errorf("%d creations were refused", n)
				}
				return nil
			})
			s.Eventually("all serve, and those that are refused as before", func(ctx context.Context) error {
				owned, err := s.OwnedServices(ctx, ls)
				for name, service := range before {
					if now := owned[name]; now == nil {
						err = fmt.Errorf("%s is gone", name)
					} else if now.UID != service.UID && strings.Contains(name, c.refused) {
						return framework.Hopeless(fmt.Errorf("%s was deleted", name))
					}
				}
				return err
			})
			t.Logf("%s", s.Requests().Resource("services").Writes())
		})
	}
}

// deny is Deny with waits: because policies take a moment to come into force, both wait until a request that changes
// nothing is refused, or no longer is.
func (s *scene) deny(
	resource, operation, allowed string, try func(ctx context.Context, dryRun []string) error,
) (stop func()) {
	s.T.Helper()
	undo := s.Deny(resource, operation, allowed)
	waitUntil := func(refused bool) {
		s.T.Helper()
		s.Eventually(fmt.Sprintf("the policy is in force: %t", refused), func(ctx context.Context) error {
			err := try(ctx, []string{metav1.DryRunAll})
			if refused != (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
				return fmt.Errorf("the answer is: %v", err)
			}
			return nil
		})
	}
	waitUntil(true)
	return func() {
		s.T.Helper()
		undo()
		waitUntil(false)
	}
}

// limitServices limits the number of Services in the namespace by a quota.
func (s *scene) limitServices(count int64) {
	s.T.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourceServices: *resource.NewQuantity(count, resource.DecimalSI)}}}
	_, err := s.Kube.CoreV1().ResourceQuotas(s.Namespace).Create(s.Ctx(), quota, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually("the quota is in force, and counts all Services", func(ctx context.Context) error {
		now, err := s.Kube.CoreV1().ResourceQuotas(s.Namespace).Get(ctx, "quota", metav1.GetOptions{})
		services, listErr := s.ServiceClient().List(ctx, metav1.ListOptions{})
		if err := errors.Join(err, listErr); err != nil {
			return err
		}
		used, isCounted := now.Status.Used[corev1.ResourceServices]
		if n := used.Value(); !isCounted || n != int64(len(services.Items)) {
			return fmt.Errorf("it counts %d of %d Services", n, len(services.Items))
		}
		return nil
	})
}

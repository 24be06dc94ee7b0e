package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// labelTimes creates pods, one after the other, and returns for each how long it took until its label was written, from
// the shortest to the longest, according to the API server.
func (s *scene) labelTimes(word, node string) (times []time.Duration) {
	s.T.Helper()
	for i := range 15 {
		name := fmt.Sprintf("%s-%d", word, i)
		s.CreatePod(name, node, app)
		s.WaitLabelled(name, node)
		pods := s.AllRequests().Namespace(s.Namespace).Resource("pods").Name(name)
		times = append(times, pods.Verb("patch").Last().Sub(pods.Verb("create").Last()))
	}
	slices.Sort(times)
	return times
}

// TestTenantWithManySelectors: in one namespace, 3,000 LocalServices and six pods have 31 long labels in common, and
// differ in one. The pods change 25 times a second each. The pods of another namespace are labelled within twice the
// time that it takes before there are the 3,000 LocalServices.
func TestTenantWithManySelectors(t *testing.T) {
	t.Parallel()
	const count = 3000
	cluster := solo(t)
	tenant, s := newScene(t, cluster, "tenant"), newScene(t, cluster, "victim")
	s.NewController(t)
	nodes := s.AddNodes("a")
	s.CreateReady("demo")

	labels := map[string]string{"one": "of-the-pods"}
	for i := range 31 {
		labels[fmt.Sprintf("%s-%02d", strings.Repeat("k", 60), i)] = strings.Repeat("v", 63)
	}
	ctx, stop := context.WithCancel(t.Context())
	var patching sync.WaitGroup
	for i := range 6 {
		name := fmt.Sprintf("pod-%d", i)
		tenant.CreatePod(name, nodes[0], labels)
		patching.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":"%d"}}}`, n)
				_, err := tenant.PodClient().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(40 * time.Millisecond)
			}
		})
	}
	defer patching.Wait()
	defer stop()
	rest := s.labelTimes("rest", nodes[0])

	tenant.InParallel(count, func(i int) error {
		ls := tenant.NewLocalService(fmt.Sprintf("ls-%d", i), func(ls *v1alpha1.LocalService) {
			ls.Spec.Selector = maps.Clone(labels)
			ls.Spec.Selector["one"] = fmt.Sprint(i)
		})
		_, err := tenant.LocalServiceClient().Create(ctx, ls, metav1.CreateOptions{})
		return err
	})
	tenant.Eventually("all LocalServices have a status", func(context.Context) error {
		if n := len(tenant.Requests().Resource("localservices/status").Where(framework.Succeeded)); n < count {
			return fmt.Errorf("%d have one", n)
		}
		return nil
	})
	before := len(tenant.AllRequests().Namespace(tenant.Namespace).Resource("pods"))
	began := time.Now()
	attacked := s.labelTimes("attacked", nodes[0])
	time.Sleep(10*time.Second - time.Since(began))
	attacked = append(attacked, s.labelTimes("attacked-later", nodes[0])...)
	rate := float64(len(tenant.AllRequests().Namespace(tenant.Namespace).Resource("pods"))-before) /
		time.Since(began).Seconds()

	slices.Sort(attacked)
	t.Logf("at rest %s, beside %.0f changes a second %s", rest, rate, attacked)
	if median := attacked[len(attacked)/2]; median > 2*rest[len(rest)/2] {
		t.Errorf("labels take %s (median), and %s at rest", median, rest[len(rest)/2])
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestLooksEveryHour: a leader looks at the guard soon after it begins, and then at the guard and the schema every hour,
// when it is asked to, and every minute while the guard is not in force, or the schema lacks fields.
// The Lease says what the guard does not protect until the next look, and another schema stops the leader. With
// -guard=false, it does not try the guard.
func TestLooksEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const schema = `{"components": {"schemas": {"a": {"x-kubernetes-group-version-kind": [{"group": "localservice.dev",
			"version": "v1alpha1", "kind": "LocalService"}], "properties": {"spec": {"properties": {%s}}}}}}}`
		var accepts, isOld atomic.Bool
		var tries atomic.Int32
		server := roundTripper(func(r *http.Request) (*http.Response, error) {
			code, body := http.StatusOK, fmt.Sprintf(schema, "") // It has all fields.
			switch {
			case r.Method == http.MethodPost && accepts.Load():
				tries.Add(1)
			case r.Method == http.MethodPost:
				tries.Add(1)
				code = http.StatusForbidden
			case isOld.Load():
				body = fmt.Sprintf(schema, `"selector": {}`)
			}
			return &http.Response{StatusCode: code, Request: r, Body: io.NopCloser(strings.NewReader(body)),
				Header: http.Header{"Content-Type": {"application/json"}}}, nil
		})
		opts := &Options{guard: true, Namespaces: []string{"shop", "payments"}}
		deps, err := NewDependencies(&rest.Config{Host: "http://example.com", Transport: server}, opts, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		leases := kubefake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}}).
			CoordinationV1().Leases("b")
		i := &inspector{LeaseInterface: leases, kube: deps.Kube, pods: deps.Caches.Pods, options: opts,
			soon: make(chan struct{}, 1)}
		expect := func(when string, wantTries int32, wantUnguarded string) {
			t.Helper()
			synctest.Wait()
			lease, err := i.Leases("b").Update(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
				metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if tries.Load() != wantTries || lease.Annotations[v1alpha1.UnguardedAnnotationKey] != wantUnguarded ||
				lease.Annotations[v1alpha1.NamespacesAnnotationKey] != "shop,payments" {
				t.Errorf("%s: %d tries, the Lease says %v; want %d, %q", when, tries.Load(), lease.Annotations, wantTries,
					wantUnguarded)
			}
		}
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		lacking, err := lackingFields(ctx, deps.Kube)
		if err != nil || len(lacking) > 0 {
			t.Fatal(lacking, err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			i.run(ctx, lacking, stop)
		}()
		expect("at the start", 0, "")
		time.Sleep(firstLook + time.Second)
		expect("after the first look", 2, "")
		accepts.Store(true)
		time.Sleep(lookInterval - 2*time.Second)
		expect("before the second look", 2, "")
		time.Sleep(2 * time.Second)
		expect("without guard", 4, "services,endpointslices")
		time.Sleep(repairInterval)
		expect("still without guard", 6, "services,endpointslices")
		accepts.Store(false)
		time.Sleep(repairInterval)
		expect("with guard again", 8, "")
		isOld.Store(true)
		time.Sleep(lookInterval - 2*time.Second)
		if ctx.Err() != nil {
			t.Error("it stops before it has looked")
		}
		for range firstLook / time.Second { // One LocalService after the other loses a field.
			i.lookSoon()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("what asks for a look again and again puts it off")
		}
		<-ended
		if cause := fmt.Sprint(context.Cause(ctx)); !strings.Contains(cause, `"spec.clusterIP" "spec.ports" `) {
			t.Error(cause)
		}
		tried := tries.Load()
		opts.guard = false
		short, cancel := context.WithTimeout(t.Context(), lookInterval)
		defer cancel()
		i.run(short, lacking, func(error) {})
		expect("with -guard=false", tried, "")

		lacking, err = lackingFields(t.Context(), deps.Kube)
		if err != nil || len(lacking) == 0 {
			t.Fatal(lacking, err)
		}
		repaired, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(firstLook+time.Second, func() { isOld.Store(false) })
		time.AfterFunc(firstLook+repairInterval+time.Second, func() { stop(errors.New("the repair does not show")) })
		i.run(repaired, lacking, stop)
		if cause := fmt.Sprint(context.Cause(repaired)); !strings.Contains(cause, "lacks the fields [] now") {
			t.Error(cause)
		}
	})
}

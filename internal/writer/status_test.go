package writer

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	localservicefake "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/fake"
)

// TestStatus: a status is written whole, to the LocalService that it is about and to no successor of its name.
func TestStatus(t *testing.T) {
	ls := testobject.LocalService()
	status := v1alpha1.LocalServiceStatus{ObservedGeneration: 2, Nodes: 3, Services: 2, ReadyNodes: 1, Ready: "1/3",
		Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "X", Message: "y",
			ObservedGeneration: 2, LastTransitionTime: metav1.Unix(1, 0).Rfc3339Copy()}}}
	resource := v1alpha1.Resource("localservices")
	for name, c := range map[string]struct {
		answer error
		fails  bool
	}{
		"written":              {nil, false},
		"deleted":              {apierrors.NewNotFound(resource, "demo"), false},
		"deleted and made new": {apierrors.NewConflict(resource, "demo", errors.New("uid mismatch")), true},
		"refused":              {apierrors.NewForbidden(resource, "demo", errors.New("no")), true},
	} {
		t.Run(name, func(t *testing.T) {
			client := localservicefake.NewClientset()
			var got v1alpha1.LocalService
			client.PrependReactor("patch", "localservices/status", func(a core.Action) (bool, runtime.Object, error) {
				if err := json.Unmarshal(a.(core.PatchAction).GetPatch(), &got); err != nil {
					t.Error(err)
				}
				return true, &got, c.answer
			})
			written, err := Status(t.Context(), client, ls, &status)
			if (err != nil) != c.fails || (written != nil) != (c.answer == nil) {
				t.Errorf("%v, %v", written, err)
			}
			if diff := cmp.Diff(status, got.Status); diff != "" || got.UID != ls.UID || got.Name != ls.Name {
				t.Errorf("to %s (UID %q) (-want +got):\n%s", got.Name, got.UID, diff)
			}
		})
	}
}

// TestStatusConcurrency: of many statuses few are written at a time, and those of a namespace whose writes all hang do
// not hold up another one.
func TestStatusConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begun, ended := map[string]int{}, make(chan struct{})
		s := &Statuses{writer: New(statusConcurrency), write: func(_ context.Context, ls *v1alpha1.LocalService,
			_ *v1alpha1.LocalServiceStatus) (*v1alpha1.LocalService, error) {
			mu.Lock()
			begun[ls.Namespace]++
			mu.Unlock()
			<-ended
			return ls, nil
		}}
		expect := func(what string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, begun); diff != "" {
				t.Errorf("%s: begun (-want +got):\n%s", what, diff)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		canceled := make(chan error, 1)
		for range 10 {
			go func() {
				if _, err := s.writeInTurn(ctx, testobject.LocalService(), nil); err != nil {
					canceled <- err
				}
			}()
		}
		expect("10 of a namespace", map[string]int{"default": statusConcurrency})
		other := testobject.LocalService(func(ls *v1alpha1.LocalService) { ls.Namespace = "other" })
		go func() { _, _ = s.writeInTurn(t.Context(), other, nil) }()
		expect("one of another", map[string]int{"default": statusConcurrency, "other": 1})
		cancel()
		for range 10 - statusConcurrency {
			if err := <-canceled; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		close(ended)
		expect("those who wait when it ends", map[string]int{"default": statusConcurrency, "other": 1})
	})
}

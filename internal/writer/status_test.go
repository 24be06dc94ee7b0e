package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
			written, err := (&Statuses{client: client}).write(t.Context(), ls, &status)
			if (err != nil) != c.fails || (written != nil) != (c.answer == nil) {
				t.Errorf("%v, %v", written, err)
			}
			if diff := cmp.Diff(status, got.Status); diff != "" || got.UID != ls.UID || got.Name != ls.Name {
				t.Errorf("to %s (UID %q) (-want +got):\n%s", got.Name, got.UID, diff)
			}
		})
	}
}

// TestStatusTurns: of many statuses few have turns at a time, those of a namespace do not take the turn of another one,
// and who waits for too long goes without.
func TestStatusTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &Statuses{writer: New(statusConcurrency)}, time.Now()
		var mu sync.Mutex
		got := map[string]int{}
		ask := func(ctx context.Context, namespace string) {
			_, hasTurn := s.turn(ctx, namespace, statusPatience)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%s after %s: %t", namespace, time.Since(began), hasTurn)]++
		}
		expect := func(what string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			clear(got)
		}
		for range 10 {
			go ask(t.Context(), "a")
		}
		expect("10 of a namespace", map[string]int{"a after 0s: true": statusConcurrency})
		ctx, cancel := context.WithCancel(t.Context())
		go ask(ctx, "b")
		expect("one of another", map[string]int{"b after 0s: true": 1})
		go ask(ctx, "b")
		cancel()
		expect("one that is canceled", map[string]int{"b after 0s: false": 1})
		time.Sleep(statusPatience)
		expect("those that wait", map[string]int{"a after 1s: false": 10 - statusConcurrency})
	})
}

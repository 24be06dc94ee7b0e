package writer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// onRead calls a function whenever a LocalService is read from the API server.
func (f *fixture) onRead(do func() error) {
	f.deps.Metadata.(*metadatafake.FakeMetadataClient).PrependReactor("get", "localservices",
		func(core.Action) (bool, runtime.Object, error) {
			err := do()
			return err != nil, nil, err
		})
}

// TestDeletionOfAServiceThatHasChanged: a Service with external changes stays. One that is already gone is not a
// failure. The Service of a node that is no longer selected is deleted.
func TestDeletionOfAServiceThatHasChanged(t *testing.T) {
	for name, c := range map[string]struct {
		service, node error
		want          string // refused, failed, stale
	}{
		"changed":                   {conflict, notFound, "0 0 1"},
		"gone":                      {notFound, notFound, "0 0 0"},
		"the node is not selected":  {nil, nil, "0 0 0"},
		"the deletion is forbidden": {forbidden, notFound, "1 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, func(ls *v1alpha1.LocalService) {
				ls.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			})
			f.onNode = func(string) error { return c.node }
			f.refusing(c.service, "delete")
			out, requests := f.write(f.changes(plan.Delete, "a"))
			got := fmt.Sprint(len(out.Refused), len(out.Failed), len(out.Stale))
			if got != c.want || len(requests) != 1 {
				t.Errorf("%s after %v, want %s", got, requests, c.want)
			}
			if made := len(out.Made[plan.Delete]) > 0; made != (c.service == nil) {
				t.Errorf("reported as deleted: %t", made)
			}
		})
	}
}

// TestRemovalsAreStopped: a Service stays if the program is stopped during the checks that precede its removal.
func TestRemovalsAreStopped(t *testing.T) {
	for action, want := range map[plan.Action][]string{plan.Delete: nil, plan.Replace: {"try demo-a"}} {
		f := newFixture(t, 1)
		ctx, stop := context.WithCancel(t.Context())
		f.onNode = func(string) error { stop(); return notFound }
		f.answer = func(string, *corev1.Service) error { stop(); return nil }
		out := f.services.Write(ctx, f.ls, &plan.Plan{Changes: f.changes(action, "a", "b")})
		if requests := f.took(); !slices.Equal(requests, want) || len(out.Made) > 0 || out.Stopped == nil {
			t.Errorf("%s: %v, want %v: %+v", action, requests, want, out)
		}
	}
}

// TestNothingIsWrittenForADeletedLocalService: the command that deleted it may have orphaned its Services.
func TestNothingIsWrittenForADeletedLocalService(t *testing.T) {
	f := newFixture(t, 1)
	f.onRead(func() error { return notFound })
	if out, requests := f.write(f.changes(plan.Adopt, "a")); len(requests) > 0 || !reconcile.IsStale(out.Stopped) {
		t.Errorf("%v, stopped by %v", requests, out.Stopped)
	}
}

// TestSlowLiveRead: however long it takes to read the LocalService, something is written.
func TestSlowLiveRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.onRead(func() error { time.Sleep(2 * slowSyncTime); return nil })
		if out, requests := f.write(f.changes(plan.Create, "a", "b")); len(requests) != 1 || !out.More {
			t.Errorf("%v: %+v", requests, out)
		}
	})
}

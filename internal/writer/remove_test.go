package writer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
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

// TestDeletionAsksForTheNode: a Service is deleted once the API server has confirmed that its node is gone, or is no
// longer selected. A Service with external changes stays. One that is already gone is not a failure. No node has the
// name if somebody has edited the annotation.
func TestDeletionAsksForTheNode(t *testing.T) {
	ssd, noAnswer := map[string]string{"disk": "ssd"}, errors.New("no answer")
	for name, c := range map[string]struct {
		name          string // of the node
		selector      map[string]string
		node, service error  // the answers
		want          string // made, refused, failed, stale, and requests
	}{
		"gone":                      {"a", nil, notFound, nil, "1 0 0 0 1"},
		"there":                     {"a", nil, nil, nil, "0 0 0 1 0"},
		"not selected":              {"a", ssd, nil, nil, "1 0 0 0 1"},
		"not answered":              {"a", nil, noAnswer, nil, "0 0 1 0 0"},
		"not permitted":             {"a", nil, forbidden, nil, "0 1 0 0 0"},
		"no name":                   {"", nil, noAnswer, nil, "1 0 0 0 1"},
		"no such name":              {"a/b", nil, noAnswer, nil, "1 0 0 0 1"},
		"the Service has changed":   {"a", ssd, notFound, conflict, "0 0 0 1 1"},
		"the Service is gone":       {"a", ssd, notFound, notFound, "0 0 0 0 1"},
		"the deletion is forbidden": {"a", ssd, notFound, forbidden, "0 1 0 0 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = c.selector })
			f.onNode = func(string) error { return c.node }
			f.refusing(c.service, "delete")
			out, requests := f.write(f.changes(plan.Delete, c.name))
			got := fmt.Sprint(len(out.Made[plan.Delete]), len(out.Refused), len(out.Failed), len(out.Stale),
				len(requests))
			if got != c.want {
				t.Errorf("%s after %v, want %s", got, requests, c.want)
			}
		})
	}
}

// TestSlowLiveRead: however long it takes to read the LocalService, something is written.
func TestSlowLiveRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.onRead(func() error { time.Sleep(2 * maxTurn); return nil })
		f.expect("slow", counts{Requests: 1, Stored: 1, More: true}, f.changes(plan.Create, "a", "b"))
	})
}

// TestRemovalsGoByTheCache: the checks before a removal may take time. The Service stays if the cache has observed by
// then that the LocalService is not the planned one any more, or if the program is stopped.
func TestRemovalsGoByTheCache(t *testing.T) {
	for name, change := range map[string]func(f *fixture, ls *v1alpha1.LocalService, stop func()){
		"another spec": func(f *fixture, ls *v1alpha1.LocalService, _ func()) { ls.Generation++; f.cache(ls) },
		"being deleted": func(f *fixture, ls *v1alpha1.LocalService, _ func()) {
			ls.DeletionTimestamp = new(now())
			f.cache(ls)
		},
		"stopped": func(_ *fixture, _ *v1alpha1.LocalService, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			f.onNode = func(string) error { change(f, f.ls.DeepCopy(), stop); return notFound }
			out := f.deps.WriteServices(ctx, f.ls, planOf(f.changes(plan.Delete, "a", "b")), always)
			f.compare(name, counts{Stale: 1, Stopped: true, Err: true}, outcome{out}, f.took())
		})
	}
}

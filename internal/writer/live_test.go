package writer

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
)

// TestConfirmWhateverTheStatus: a status that cannot be decoded does not prevent the check of a LocalService, which
// precedes the write that replaces that status.
func TestConfirmWhateverTheStatus(t *testing.T) {
	ls := objects.LocalService()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "status": {"ready": 2},
			"metadata": {"name": %q, "namespace": %q, "uid": %q, "generation": %d}}`,
			ls.Name, ls.Namespace, ls.UID, ls.Generation)
	}))
	defer server.Close()
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Dependencies{Metadata: client}).confirm(t.Context(), ls); err != nil {
		t.Error(err)
	}
}

// TestWritesOfCurrentOnly: nothing is written for a LocalService that differs between the API server and the cache. It
// is read once, and only if there is anything to write.
func TestWritesOfCurrentOnly(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*fixture)
		made int
	}{
		"as the cache has it":            {func(*fixture) {}, 2},
		"with another status, or labels": {func(f *fixture) { f.live.ResourceVersion = "99" }, 2},
		"changed":                        {func(f *fixture) { f.live.Generation++ }, 0},
		"recreated":                      {func(f *fixture) { f.live.UID = "another" }, 0},
		"being deleted":                  {func(f *fixture) { f.live.DeletionTimestamp = new(now()) }, 0},
		"deleted":                        {func(f *fixture) { f.onRead(func() error { return notFound }) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			c.edit(f)
			reads := 0
			f.onRead(func() error { reads++; return nil })
			out, _ := f.expect(name, counts{Requests: c.made, Stored: c.made / 2, Deleted: c.made / 2,
				Stopped: c.made == 0}, f.changes(plan.Create, "a"), f.changes(plan.Delete, "b"))
			if out.Stopped != nil && !reconcile.IsStale(out.Stopped) || reads != 1 {
				t.Errorf("stopped by %v, after %d reads", out.Stopped, reads)
			}
		})
	}
	t.Run("changed during the last write", func(t *testing.T) {
		f := newFixture(t, 1)
		f.answer = func(string, *corev1.Service) error {
			changed := f.ls.DeepCopy()
			changed.Generation++
			return f.cached.Update(changed)
		}
		if out, _ := f.write(f.changes(plan.Create, "a")); !reconcile.IsStale(out.Stopped) {
			t.Errorf("%+v", out)
		}
	})
	t.Run("nothing to write", func(t *testing.T) {
		f := newFixture(t, 1)
		f.live.Generation++
		f.deps.Refusals.Add(Attempt{Owner: f.ls.UID, Generation: 1, Action: plan.Create, Name: "demo-a"},
			errors.New("no"))
		out, _ := f.write(f.changes(plan.Create, "a"), f.changes(plan.Wait, "b"), f.changes(plan.Conflict, "c"))
		if out.Stopped != nil || len(out.Refused) != 1 {
			t.Errorf("%+v", out)
		}
	})
}

package writer

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
)

// TestIsCurrentWhateverTheStatus: a status that cannot be decoded does not keep the LocalService from being looked at,
// which comes before the status is written again.
func TestIsCurrentWhateverTheStatus(t *testing.T) {
	ls := testobject.LocalService()
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
	if err := (&Dependencies{Metadata: client}).isCurrent(t.Context(), ls); err != nil {
		t.Error(err)
	}
}

// TestWritesOfCurrentOnly: nothing is written for a LocalService that the API server has in another way than the cache;
// and it is read once, and only where there is anything to write.
func TestWritesOfCurrentOnly(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*metav1.PartialObjectMetadata)
		made int
	}{
		"as the cache has it":            {func(*metav1.PartialObjectMetadata) {}, 2},
		"with another status, or labels": {func(m *metav1.PartialObjectMetadata) { m.ResourceVersion = "99" }, 2},
		"changed":                        {func(m *metav1.PartialObjectMetadata) { m.Generation++ }, 0},
		"recreated":                      {func(m *metav1.PartialObjectMetadata) { m.UID = "another" }, 0},
		"being deleted": {func(m *metav1.PartialObjectMetadata) {
			m.DeletionTimestamp = new(now())
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			c.edit(f.live)
			out, requests := f.write(f.changes(plan.Create, "a"), f.changes(plan.Delete, "b"))
			isStale := out.Stopped != nil && reconcile.IsStale(out.Stopped)
			if len(requests) != c.made || isStale != (c.made == 0) || !isStale && out.Stopped != nil {
				t.Errorf("%v, stopped by %v", requests, out.Stopped)
			}
		})
	}
	t.Run("nothing to write", func(t *testing.T) {
		f := newFixture(t, 1)
		f.live.Generation++
		f.deps.Refusals.Add(reconcile.Attempt{Owner: f.ls.UID, Generation: 1, Name: "demo-a"}, errors.New("no"))
		out, _ := f.write(f.changes(plan.Create, "a"), f.changes(plan.Wait, "b"), f.changes(plan.Conflict, "c"))
		if out.Stopped != nil || len(out.Refused) != 1 {
			t.Errorf("%+v", out)
		}
	})
}

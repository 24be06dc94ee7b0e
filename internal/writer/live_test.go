package writer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/internal/testobject"
)

// TestIsCurrentWhateverTheStatus: a status that cannot be decoded does not keep the LocalService from being looked at,
// which comes before the status is written anew.
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
	if err := IsCurrent(t.Context(), client, ls); err != nil {
		t.Error(err)
	}
}

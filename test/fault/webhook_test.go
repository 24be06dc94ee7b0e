package fault

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// hangingWebhook is asked about all writes of Services in a namespace. The API server waits for it as long as it can.
const hangingWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
- name: hangs.example.com
  clientConfig: {url: URL, caBundle: CERTIFICATE}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  rules: [{operations: [CREATE, UPDATE, DELETE], apiGroups: [""], apiVersions: [v1], resources: [services]}]
  failurePolicy: Fail
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
`

// TestWebhookThatHangs makes all writes of Services in one namespace hang, of more LocalServices than there are
// workers. The nodes that join meanwhile get their Services in another namespace as soon as without that.
func TestWebhookThatHangs(t *testing.T) {
	const pause = time.Second
	joining := 4
	if whole() {
		joining = 60 // By then, all writes have been given up, and tried again.
	}
	slow, other := newWorld(t, shared, 3), newWorld(t, shared, 2)
	startController(t, shared, "-kubeconfig="+shared.MustControllerKubeconfig(t), "-workers=2", "-write-concurrency=4")
	other.createLocalService("a")
	other.settle("before")
	url, certificate, end := hang(t)
	undo := slow.Apply(strings.NewReplacer("URL", url, "CERTIFICATE", certificate).Replace(hangingWebhook))
	slow.Eventually("writes hang", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := slow.ServiceClient().Create(ctx, framework.NewForeignService("trial", nil),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return fmt.Errorf("a write has ended: %w", err)
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		slow.createLocalService(name)
	}
	time.Sleep(pause)
	for i := range joining {
		began := time.Now()
		other.addNode(fmt.Sprintf("late%d", i))
		other.settle("a node joins while the writes of another namespace hang")
		if took := time.Since(began); took > recovery {
			other.fail("the Service of a node came after %s", took)
		}
		time.Sleep(pause)
	}
	slow.note("the webhook is gone")
	undo()
	end()
	slow.settle("without the webhook")
	slow.rest(time.Second)
}

// hang starts a server that answers no request until end is called, and then refuses all.
func hang(t *testing.T) (url, certificate string, end func()) {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	end = sync.OnceFunc(func() {
		close(ended)
		server.Close()
	})
	t.Cleanup(end)
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.URL, base64.StdEncoding.EncodeToString(encoded), end
}

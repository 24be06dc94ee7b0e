package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// webhookTimeout is how long the API server waits for a webhook. Then it goes on without it.
const webhookTimeout = 10 * time.Second

// behindWebhook calls use while an admission webhook takes some time to allow each creation of a Service.
func (s *scene) behindWebhook(ctx context.Context, takes time.Duration, use func()) {
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review admissionv1.AdmissionReview
		if json.NewDecoder(r.Body).Decode(&review) != nil || pause(r.Context(), takes) != nil {
			return // The API server has given up.
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhooks := s.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	try(webhooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "slow.bench.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"services"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.name}},
			FailurePolicy:     new(admissionregistrationv1.Ignore), TimeoutSeconds: new(int32(webhookTimeout / time.Second)),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}))
	defer func() { s.note(webhooks.Delete(ctx, s.name, metav1.DeleteOptions{})) }()
	must(framework.Poll(ctx, func(ctx context.Context) error { // The API server has noticed it.
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"},
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := s.Kube.CoreV1().Services(s.name).Create(ctx, service, options)
		if err == nil && asked.Load() == 0 {
			err = errors.New("the webhook was not asked")
		}
		return err
	}))
	use()
}

// measureWebhook measures row 11: a fan-out that waits for an admission webhook which is slow, and for one which never
// answers.
func measureWebhook(ctx context.Context, b *bench) {
	for _, c := range []struct {
		what   string
		takes  time.Duration
		nodes  int
		limit  float64
		rounds int
	}{
		{"behind a webhook that takes 1 s", time.Second, 200, 1.3, fanOutRounds},
		{"behind a webhook that never answers", time.Hour, 40, 2, 1},
	} {
		b.withScene(ctx, b.n(c.nodes), func(s *scene) {
			s.behindWebhook(ctx, b.shorter(c.takes), func() {
				s.compareFanOut(ctx, 11, c.what, c.limit, c.rounds)
			})
		})
	}
}

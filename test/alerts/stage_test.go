package alerts

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// stage has a cluster, and the Prometheus that scrapes its controllers.
type stage struct {
	*framework.Cluster
	t          *testing.T // controllers end with it
	prometheus *prometheus
}

// newStage starts a cluster with so few cluster IPs that they are soon exhausted, and with the objects of
// artifacts/deploy, which runbooks name. Nothing runs their pods: the controllers run beside the cluster.
func newStage(t *testing.T) *stage {
	t.Helper()
	st := &stage{t: t, prometheus: startPrometheus(t), Cluster: framework.NewCluster(t, framework.ClusterOptions{
		ControlPlaneOnly: true,
		Args:             []string{"--apiserver-flag=--service-cluster-ip-range=10.96.0.0/28"},
	})}
	st.RunKubectl(t, "apply", "-f",
		framework.MustModuleFile(t, "artifacts", "deploy", "local-service-controller.yaml"))
	return st
}

// start runs a controller beside the cluster, makes Prometheus scrape only it, and returns a function that ends it. It
// need not become ready.
func (st *stage) start(args ...string) (stop func()) {
	st.t.Helper()
	controller := st.LaunchController(st.t, args...)
	st.prometheus.scrape(st.t, controller)
	return func() {
		if err := controller.Stop(); err != nil {
			st.t.Fatal(err)
		}
	}
}

// scene is a namespace in which one alert fires.
type scene struct {
	*framework.Scene
	stage *stage
}

func (st *stage) newScene(t *testing.T, word string) *scene {
	return &scene{st.NewScene(t, word), st}
}

// slow makes a webhook delay each write of a resource in the scene's namespace, until the function that it returns is
// called. The resource may have its group after a dot.
func (s *scene) slow(resource string, operation admissionregistrationv1.OperationType,
	delay time.Duration) (stop func()) {
	s.T.Helper()
	released := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(delay):
		case <-released:
		case <-r.Context().Done():
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(&review)
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	s.T.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhooks := s.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}
	of := schema.ParseGroupResource(resource)
	name := s.Namespace + "-" + strings.ReplaceAll(of.Resource, "/", "-")
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{of.Group}, APIVersions: []string{"*"},
			Resources: []string{of.Resource}},
	}
	_, err := webhooks.Create(s.Ctx(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "slow.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			Rules:                   []admissionregistrationv1.RuleWithOperations{rule},
			NamespaceSelector:       here,
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(30)),
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	s.Must(err)
	return func() {
		s.T.Helper()
		close(released)
		s.Must(webhooks.Delete(s.Ctx(), name, metav1.DeleteOptions{}))
	}
}

// fires waits until an alert with some labels fires, and returns it.
func (s *scene) fires(name string, labels map[string]string) {
	s.T.Helper()
	var found *alert
	s.Eventually(fmt.Sprintf("%s %v fires", name, labels), func(ctx context.Context) (err error) {
		if found, err = s.stage.prometheus.find(ctx, name, labels); err != nil {
			return err
		} else if found == nil {
			return errSilent
		} else if found.State != "firing" {
			return fmt.Errorf("it is %s", found.State)
		}
		return nil
	})
	for key, text := range found.Annotations {
		if strings.Contains(text, "<no value>") || strings.Contains(text, "{{") || strings.Contains(text, "  ") ||
			strings.Contains(text, "()") {
			s.T.Errorf("%s: %s: %s", name, key, text)
		}
	}
	s.T.Logf("%s: %s", name, found.Annotations["summary"])
}

// goesOut waits until an alert with some labels is neither firing nor pending.
func (s *scene) goesOut(name string, labels map[string]string) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%s %v goes out", name, labels), func(ctx context.Context) error {
		found, err := s.stage.prometheus.find(ctx, name, labels)
		if err == nil && found != nil {
			err = fmt.Errorf("it is %s: %v", found.State, found.Annotations["summary"])
		}
		return err
	})
}

// calm waits until no alert fires, and all rules have been evaluated.
func (s *scene) calm() {
	s.T.Helper()
	s.Eventually("no alert fires", func(ctx context.Context) error {
		var rules struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		all, err := s.stage.prometheus.alerts(ctx)
		if err = errors.Join(err, s.stage.prometheus.get(ctx, "rules", nil, &rules)); err != nil {
			return err
		}
		for i := range all {
			if all[i].State == "firing" {
				err = errors.Join(err, fmt.Errorf("%s fires: %v", all[i].Labels["alertname"],
					all[i].Annotations["summary"]))
			}
		}
		if len(rules.Groups) == 0 {
			return errors.New("there are no rules")
		}
		for _, rule := range rules.Groups[0].Rules {
			if rule.Health != "ok" {
				err = errors.Join(err, fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError))
			}
		}
		return err
	})
}

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// permittedFor is how long who was permitted may read without another review. Nobody else is remembered: strangers
	// must not fill the memory.
	permittedFor = 5 * time.Minute
	// reviewTimeout leaves time for the metrics within the usual scrape timeout of 10 s.
	reviewTimeout = 3 * time.Second
)

// refusal answers a client that may not read.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }

// protect returns a handler that serves only clients that may read: those whose bearer token the API server accepts,
// and whom it permits. It reads and caches tokens as the API server does. The delegating authenticator of
// k8s.io/apiserver would send the reviews as well, but with it the program is twice as large, and takes 18 MB more.
func protect(next http.Handler, kube kubernetes.Interface) http.Handler {
	complaints := NewComplaints()
	permits := func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		err := review(ctx, kube, token)
		return &authenticator.Response{}, err == nil, err
	}
	clients := bearertoken.New(cache.New(authenticator.TokenFunc(permits), false, permittedFor, 0))
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		// A client that hangs up keeps its connection until its review has ended: maxConnections bounds both.
		_, permitted, err := clients.AuthenticateRequest(request.WithContext(context.WithoutCancel(request.Context())))
		if permitted {
			next.ServeHTTP(w, request)
			return
		}
		refused, isRefused := errors.AsType[*refusal](err)
		switch {
		case err == nil:
			refused = &refusal{http.StatusUnauthorized, "a bearer token is needed"}
		case !isRefused:
			if complaints.IsNews("", err.Error()) {
				klog.FromContext(request.Context()).Error(err, "Cannot find out who may read /metrics: is the chart's "+
					"value metrics.secure.enabled set or, without Helm, metrics-secure.yaml of the release (in the "+
					"source artifacts/deploy/metrics-secure.yaml) applied?")
			}
			refused = &refusal{http.StatusServiceUnavailable,
				"the API server does not say who you are, or what you may do"}
		}
		w.Header().Set("Connection", "close") // The number of connections is bounded.
		if refused.code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, refused.message, refused.code)
	})
}

// review asks the API server whose token this is, and whether that user may read /metrics. Its error is a refusal, or
// says why the API server did not answer.
func review(ctx context.Context, kube kubernetes.Interface, token string) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	who, err := kube.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review a token that asks for /metrics: %w", err)
	}
	if !who.Status.Authenticated {
		return &refusal{http.StatusUnauthorized, "the API server does not accept this token"}
	}
	user := who.Status.User
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
	for key, value := range user.Extra {
		access.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	access, err = kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, access, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review whether user %q may get /metrics: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return &refusal{http.StatusForbidden, fmt.Sprintf("user %q may not get the non-resource URL /metrics: "+
			"bind the ClusterRole local-service-metrics-reader to it or, with the chart, the one that ends in "+
			"-metrics-reader", user.Username)}
	}
	return nil
}

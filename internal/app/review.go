package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

const (
	// reviewInterval is how long a permitted token is accepted without asking the API server again, and staleInterval
	// how long if that does not answer: then operators need the metrics most.
	reviewInterval = time.Minute
	staleInterval  = 15 * time.Minute
	// reviewTimeout leaves time for the metrics within the usual scrape timeout of 10 s.
	reviewTimeout = 3 * time.Second
	// Beyond maxTokens permitted tokens, some are reviewed more often.
	maxTokens = 100
	// Tokens of strangers, who may send anything, are reviewed at most strangersPerSecond times a second, in bursts of
	// strangersAtOnce. With reviewTimeout, this bounds the reviews under way.
	strangersPerSecond = 5
	strangersAtOnce    = 10
)

// reviewer admits clients to /metrics whose bearer token the API server accepts, and whom it permits.
type reviewer struct {
	kube       kubernetes.Interface
	strangers  flowcontrol.PassiveRateLimiter
	permitted  *utilcache.LRUExpireCache // time.Time of the last review, by the hash of the token
	complaints complaints
}

func newReviewer(kube kubernetes.Interface) *reviewer {
	return &reviewer{kube: kube,
		strangers:  flowcontrol.NewTokenBucketPassiveRateLimiter(strangersPerSecond, strangersAtOnce),
		permitted:  utilcache.NewLRUExpireCache(maxTokens),
		complaints: newComplaints()}
}

// refusal is the response to a client that may not read.
type refusal struct {
	code    int
	message string
}

// protect returns a handler that serves only clients that may read.
func (r *reviewer) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		refused := r.review(request)
		if refused == nil {
			next.ServeHTTP(w, request)
			return
		}
		w.Header().Set("Connection", "close") // The number of connections is bounded.
		switch refused.code {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, refused.message, refused.code)
	})
}

func (r *reviewer) review(request *http.Request) *refusal {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return &refusal{http.StatusUnauthorized, "a bearer token is needed"}
	}
	key := sha256.Sum256([]byte(token))
	reviewed, known := r.permitted.Get(key)
	if known && time.Since(reviewed.(time.Time)) < reviewInterval {
		return nil
	}
	if !known && !r.strangers.TryAccept() {
		return &refusal{http.StatusTooManyRequests, "too many tokens that are not known: try again later"}
	}
	refused, err := r.ask(request.Context(), token)
	switch {
	case err == nil && refused == nil:
		r.permitted.Add(key, time.Now(), staleInterval)
		return nil
	case err == nil:
		r.permitted.Remove(key)
		return refused
	case request.Context().Err() == nil && r.complaints.isNews("", err.Error()):
		klog.FromContext(request.Context()).Error(err, "Cannot find out who may read /metrics: is "+
			"the chart's value metrics.secure.enabled set or, without Helm, metrics-secure.yaml of the release "+
			"(in the source artifacts/deploy/metrics-secure.yaml) applied?")
	}
	if known {
		return nil
	}
	return &refusal{http.StatusServiceUnavailable, "the API server does not say who you are, or what you may do"}
}

// ask asks the API server whose token this is, and whether that user may read /metrics.
func (r *reviewer) ask(ctx context.Context, token string) (*refusal, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	who, err := r.kube.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review a token that asks for /metrics: %w", err)
	}
	if !who.Status.Authenticated {
		return &refusal{http.StatusUnauthorized, "the API server does not accept this token"}, nil
	}
	user := who.Status.User
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
	for key, value := range user.Extra {
		access.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	access, err = r.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, access, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("review whether user %q may get /metrics: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return &refusal{http.StatusForbidden, fmt.Sprintf("user %q may not get the non-resource URL /metrics: "+
			"bind the ClusterRole local-service-metrics-reader to it or, with the chart, the one that ends in "+
			"-metrics-reader", user.Username)}, nil
	}
	return nil, nil
}

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
	"k8s.io/klog/v2"
)

const (
	// permittedFor is how long who was permitted may read without another review, and refusedFor how long whoever was
	// refused, or could not be reviewed, may not.
	permittedFor = 5 * time.Minute
	refusedFor   = 10 * time.Second
	// reviewTimeout leaves time for the metrics within the usual scrape timeout of 10 s.
	reviewTimeout = 3 * time.Second
	// Beyond maxTokens, some are reviewed more often.
	maxTokens = 1000
)

// reviewer admits clients to /metrics whose bearer token the API server accepts, and whom it permits. The delegating
// authenticator of k8s.io/apiserver does the same, but would double the size of the program.
type reviewer struct {
	kube       kubernetes.Interface
	reviewed   *utilcache.LRUExpireCache // *refusal, nil for permitted, by the hash of the token
	complaints *Complaints
}

// refusal answers a client that may not read.
type refusal struct {
	code    int
	message string
}

// protect returns a handler that serves only clients that may read.
func protect(next http.Handler, kube kubernetes.Interface) http.Handler {
	r := &reviewer{kube, utilcache.NewLRUExpireCache(maxTokens), NewComplaints()}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		refused := r.review(request)
		if refused == nil {
			next.ServeHTTP(w, request)
			return
		}
		w.Header().Set("Connection", "close") // The number of connections is bounded.
		if refused.code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, refused.message, refused.code)
	})
}

// review reviews a request, unless its token was reviewed a moment ago.
func (r *reviewer) review(request *http.Request) *refusal {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return &refusal{http.StatusUnauthorized, "a bearer token is needed"}
	}
	key := sha256.Sum256([]byte(token))
	if known, isKnown := r.reviewed.Get(key); isKnown {
		return known.(*refusal)
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	refused, err := r.ask(ctx, token)
	if request.Context().Err() != nil {
		return &refusal{http.StatusServiceUnavailable, "canceled"}
	}
	if err != nil {
		refused = &refusal{http.StatusServiceUnavailable, "the API server does not say who you are, or what you may do"}
		if r.complaints.IsNews("", err.Error()) {
			klog.FromContext(request.Context()).Error(err, "Cannot find out who may read /metrics: is the chart's "+
				"value metrics.secure.enabled set or, without Helm, metrics-secure.yaml of the release (in the source "+
				"artifacts/deploy/metrics-secure.yaml) applied?")
		}
	}
	valid := permittedFor
	if refused != nil {
		valid = refusedFor
	}
	r.reviewed.Add(key, refused, valid)
	return refused
}

// ask asks the API server whose token this is, and whether that user may read /metrics.
func (r *reviewer) ask(ctx context.Context, token string) (*refusal, error) {
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

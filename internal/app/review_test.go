package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
)

// reviews is an API server that knows two tokens: "prometheus", which may read metrics, and "nobody", which may not.
type reviews struct {
	protected http.Handler
	asked     atomic.Int64 // how many tokens were reviewed
	fails     atomic.Bool  // whether it fails to answer
}

func newReviews() *reviews {
	r := &reviews{}
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "tokenreviews", func(a core.Action) (bool, runtime.Object, error) {
		r.asked.Add(1)
		review := a.(core.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if name := review.Spec.Token; name == "prometheus" || name == "nobody" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: name, UID: "uid", Groups: []string{"group"},
				Extra: map[string]authenticationv1.ExtraValue{"key": {"value"}}}}
		}
		if r.fails.Load() {
			return true, nil, errors.New("connection refused")
		}
		return true, review, nil
	})
	kube.PrependReactor("create", "subjectaccessreviews", func(a core.Action) (bool, runtime.Object, error) {
		review := a.(core.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = reflect.DeepEqual(review.Spec, authorizationv1.SubjectAccessReviewSpec{
			User: "prometheus", UID: "uid", Groups: []string{"group"},
			Extra:                 map[string]authorizationv1.ExtraValue{"key": {"value"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}})
		return true, review, nil
	})
	r.protected = protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), kube)
	return r
}

// get requests the metrics, and returns the status code.
func (r *reviews) get(authorization string) int {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Authorization", authorization)
	recorder := httptest.NewRecorder()
	r.protected.ServeHTTP(recorder, request)
	return recorder.Code
}

func (r *reviews) expect(t *testing.T, what, authorization string, want int, asked int64) {
	t.Helper()
	before := r.asked.Load()
	if code := r.get(authorization); code != want || r.asked.Load()-before != asked {
		t.Errorf("%s: %d, after %d reviews; want %d, %d", what, code, r.asked.Load()-before, want, asked)
	}
}

// TestWhoMayRead: only a token that the API server permits may read, and the API server is asked about that one only
// once in a while.
func TestWhoMayRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews()
		for _, none := range []string{"", "Bearer", "Bearer ", "Basic prometheus", "prometheus"} {
			r.expect(t, fmt.Sprintf("%q", none), none, http.StatusUnauthorized, 0)
		}
		r.expect(t, "an unknown token", "Bearer x", http.StatusUnauthorized, 1)
		r.expect(t, "a token of somebody who may not", "Bearer nobody", http.StatusForbidden, 1)
		r.expect(t, "a token of somebody who may", "bearer prometheus", http.StatusOK, 1)
		r.expect(t, "nobody again", "Bearer nobody", http.StatusForbidden, 1)
		time.Sleep(permittedFor - time.Second)
		r.expect(t, "soon after", "Bearer prometheus", http.StatusOK, 0)
		time.Sleep(2 * time.Second)
		r.expect(t, "later", "Bearer prometheus", http.StatusOK, 1)
	})
}

// TestReviewsFail: while the API server does not answer, only tokens that were permitted a moment ago may read.
func TestReviewsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews()
		r.expect(t, "permitted", "Bearer prometheus", http.StatusOK, 1)
		r.fails.Store(true)
		r.expect(t, "a stranger", "Bearer nobody", http.StatusServiceUnavailable, 1)
		r.expect(t, "no answer", "Bearer prometheus", http.StatusOK, 0)
		time.Sleep(permittedFor + time.Second)
		r.expect(t, "no answer for long", "Bearer prometheus", http.StatusServiceUnavailable, 1)
		r.fails.Store(false)
		r.expect(t, "an answer", "Bearer prometheus", http.StatusOK, 1)
	})
}

// TestClientHangsUp: a client that hangs up gives its connection back only when its review has ended. Otherwise the
// bound of connections would not bound the reviews under way.
func TestClientHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		kube := kubefake.NewClientset()
		kube.PrependReactor("create", "tokenreviews", func(core.Action) (bool, runtime.Object, error) {
			<-answer
			return true, &authenticationv1.TokenReview{}, nil
		})
		ctx, hangUp := context.WithCancel(t.Context())
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", "Bearer stranger")
		var ended atomic.Bool
		go func() {
			protect(http.NotFoundHandler(), kube).ServeHTTP(httptest.NewRecorder(), request)
			ended.Store(true)
		}()
		synctest.Wait()
		hangUp()
		synctest.Wait()
		if ended.Load() {
			t.Error("the request has ended before its review")
		}
		close(answer)
	})
}

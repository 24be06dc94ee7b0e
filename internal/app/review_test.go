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
	*reviewer
	asked atomic.Int64 // how many tokens were reviewed
	fails atomic.Bool  // whether it fails to answer
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
	r.reviewer = newReviewer(kube)
	return r
}

// get requests the metrics, and returns the status code.
func (r *reviews) get(authorization string) int {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Authorization", authorization)
	recorder := httptest.NewRecorder()
	r.protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(recorder, request)
	return recorder.Code
}

func (r *reviews) expect(t *testing.T, what, authorization string, want int, asked int64) {
	t.Helper()
	before := r.asked.Load()
	if code := r.get(authorization); code != want || r.asked.Load()-before != asked {
		t.Errorf("%s: %d, after %d reviews; want %d, %d", what, code, r.asked.Load()-before, want, asked)
	}
}

// TestWhoMayRead: only a token that the API server permits may read, and the API server is asked only as often as
// needed.
func TestWhoMayRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews()
		for _, none := range []string{"", "Bearer", "Bearer ", "Basic prometheus", "prometheus"} {
			r.expect(t, fmt.Sprintf("%q", none), none, http.StatusUnauthorized, 0)
		}
		r.expect(t, "an unknown token", "Bearer x", http.StatusUnauthorized, 1)
		r.expect(t, "a token of somebody who may not", "Bearer nobody", http.StatusForbidden, 1)
		r.expect(t, "a token of somebody who may", "bearer prometheus", http.StatusOK, 1)
		time.Sleep(reviewInterval - time.Second)
		r.expect(t, "soon after", "Bearer prometheus", http.StatusOK, 0)
		time.Sleep(time.Second)
		r.expect(t, "later", "Bearer prometheus", http.StatusOK, 1)
		r.expect(t, "somebody who may not is not remembered", "Bearer nobody", http.StatusForbidden, 1)
	})
}

// TestReviewsFail: while the API server does not answer, unknown tokens are refused. A token that was permitted may
// read for a while longer, but not if the API server denies it.
func TestReviewsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews()
		r.expect(t, "permitted", "Bearer prometheus", http.StatusOK, 1)
		r.fails.Store(true)
		time.Sleep(reviewInterval)
		r.expect(t, "a stranger", "Bearer nobody", http.StatusServiceUnavailable, 1)
		r.expect(t, "no answer", "Bearer prometheus", http.StatusOK, 1)
		time.Sleep(staleInterval)
		r.expect(t, "no answer for long", "Bearer prometheus", http.StatusServiceUnavailable, 1)
		r.fails.Store(false)
		time.Sleep(time.Second)
		r.expect(t, "an answer", "Bearer prometheus", http.StatusOK, 1)
		time.Sleep(reviewInterval)
		r.kube.(*kubefake.Clientset).PrependReactor("create", "subjectaccessreviews",
			func(a core.Action) (bool, runtime.Object, error) {
				return true, a.(core.CreateAction).GetObject(), nil
			})
		r.expect(t, "permitted no more", "Bearer prometheus", http.StatusForbidden, 1)
		r.fails.Store(true)
		r.expect(t, "and no answer", "Bearer prometheus", http.StatusServiceUnavailable, 1)
	})
}

// TestStrangersAreBounded: however many unknown tokens arrive, the API server is asked about few of them, and a
// permitted token is not delayed.
func TestStrangersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews()
		r.expect(t, "permitted", "Bearer prometheus", http.StatusOK, 1)
		r.asked.Store(0)
		ctx, stop := context.WithTimeout(t.Context(), reviewInterval)
		defer stop()
		for i := range 50 {
			go func() {
				for n := 0; ctx.Err() == nil; n++ {
					_ = r.get(fmt.Sprintf("Bearer random-%d-%d", i, n))
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		<-ctx.Done()
		synctest.Wait() // None of them asks any more.
		most := int64(strangersPerSecond*reviewInterval/time.Second) + strangersAtOnce
		if asked := r.asked.Load(); asked > most || asked < most/2 {
			t.Errorf("%d reviews in a minute of 30,000 tokens, want at most %d", asked, most)
		}
		for range strangersAtOnce + 1 {
			_ = r.get("Bearer x") // This uses up all reviews.
		}
		r.expect(t, "who has been permitted", "Bearer prometheus", http.StatusOK, 1)
		r.expect(t, "a stranger", "Bearer nobody", http.StatusTooManyRequests, 0)
		time.Sleep(time.Second) // The unknown tokens end.
	})
}

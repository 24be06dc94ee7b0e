package cache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// apiServer lists and watches Services in a test.
type apiServer struct {
	revision string
	answer   func() error // of lists and watches; nil for success
	asked    []time.Duration
	began    time.Time
	options  []metav1.ListOptions
	reported []time.Duration // when errors were reported
	works    bool            // the last report said so
	restored error
	watch    *watch.FakeWatcher // the last one that began
}

func (a *apiServer) request(options metav1.ListOptions) error {
	a.asked = append(a.asked, time.Since(a.began))
	a.options = append(a.options, options)
	if a.answer == nil {
		return nil
	}
	return a.answer()
}

func (a *apiServer) reader() cache.ListerWatcherWithContext {
	a.began = time.Now()
	reader := NewReader(nil, func(_ context.Context, options metav1.ListOptions) (*corev1.ServiceList, error) {
		return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: a.revision}}, a.request(options)
	}, func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
		if err := a.request(options); err != nil {
			return nil, err
		}
		a.watch = watch.NewFake()
		return a.watch, nil
	}).selecting("labels", "fields")
	reader.resource = "services"
	reader.onError = func(_ context.Context, _ string, err error) {
		if a.works = err == nil; !a.works {
			a.reported = append(a.reported, time.Since(a.began))
		}
	}
	reader.onRestore = func(err error) { a.restored = err }
	return cache.ToListerWatcherWithContext(reader.listerWatcher())
}

func answered(code int) error {
	return apierrors.NewGenericServerResponse(code, "get", corev1.Resource("services"), "", "cannot", 0, false)
}

// balanced returns the error of an answer without a Status, as load balancers give it.
func balanced(code int) error {
	return apierrors.NewGenericServerResponse(code, "get", corev1.Resource("services"), "", "<html>", 0, true)
}

// TestReadsPersist: what fails is tried again every few seconds, and is reported only if it has failed for a while.
// What the reflector must handle is returned at once.
func TestReadsPersist(t *testing.T) {
	refused, expired := errors.New("connection refused"), apierrors.NewResourceExpired("too old")
	tooNew := apierrors.NewTimeoutError("Too large resource version", 1)
	tooNew.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, c := range map[string]struct {
		err    error
		lasts  time.Duration
		passes bool // or it is returned at once
	}{
		"RBAC knows no roles yet": {answered(http.StatusForbidden), 3 * time.Second, true},
		"an outage":               {refused, 40 * time.Second, true},
		"permissions are missing": {answered(http.StatusForbidden), time.Minute, true},
		"there is no CRD":         {answered(http.StatusNotFound), time.Minute, true},
		"it answers anything":     {answered(http.StatusConflict), time.Minute, true},
		"the version is too old":  {expired, time.Minute, false},
		"the version is too new":  {tooNew, time.Minute, false},
		"it is overloaded":        {answered(http.StatusGatewayTimeout), 40 * time.Second, true},
		"a load balancer's 504":   {balanced(http.StatusGatewayTimeout), 40 * time.Second, true},
		"a load balancer's 502":   {balanced(http.StatusBadGateway), 40 * time.Second, true},
		"a load balancer's 429":   {balanced(http.StatusTooManyRequests), 40 * time.Second, true},
		"a load balancer's 410":   {balanced(http.StatusGone), 40 * time.Second, true},
		"a load balancer's 422":   {balanced(http.StatusUnprocessableEntity), 40 * time.Second, true},
		"a load balancer's 400":   {balanced(http.StatusBadRequest), 40 * time.Second, true},
		"it cannot stream lists":  {answered(http.StatusUnprocessableEntity), time.Minute, false},
	} {
		for _, verb := range []string{"list", "watch"} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := &apiServer{}
					reader := a.reader()
					a.answer = func() error {
						if time.Since(a.began) < c.lasts {
							return c.err
						}
						return nil
					}
					var err error
					if verb == "list" {
						_, err = reader.ListWithContext(t.Context(), metav1.ListOptions{})
					} else {
						_, err = reader.WatchWithContext(t.Context(), metav1.ListOptions{})
					}
					took := time.Since(a.began)
					if !c.passes {
						if !errors.Is(err, c.err) || took > 0 {
							t.Errorf("%v after %s", err, took)
						}
						return
					}
					if late := took - c.lasts; err != nil || late > 5*time.Second {
						t.Errorf("%v after %s", err, took)
					}
					if len(a.asked) > 6+int(c.lasts/(3*time.Second)) {
						t.Errorf("asked at %v", a.asked)
					}
					if (len(a.reported) > 0) != (c.lasts > reportAfter) || len(a.reported) > 0 &&
						(a.reported[0] < reportAfter || a.reported[0] > reportAfter+5*time.Second) {
						t.Errorf("reported at %v", a.reported)
					}
					if a.works != (len(a.reported) > 0) {
						t.Errorf("reported that it works: %t", a.works)
					}
					if o := a.options[0]; o.LabelSelector != "labels" || o.FieldSelector != "fields" {
						t.Errorf("the options are %v", o)
					}
				})
			})
		}
	}
}

// TestStreamedListBreaksOff: a streamed list whose end does not come, or whose watch ends before it, ends with an error,
// upon which the reflector lists. A list that has ended has no more to do with it, and nor has any other watch.
func TestStreamedListBreaksOff(t *testing.T) {
	added := watch.Event{Type: watch.Added, Object: &corev1.Service{}}
	bookmark := watch.Event{Type: watch.Bookmark, Object: &corev1.Service{}}
	listEnd := watch.Event{Type: watch.Bookmark, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}}
	for name, c := range map[string]struct {
		isFollowed bool          // or the watch streams a list
		sent       []watch.Event // by the API server
		ends       bool          // the watch, then
		after      time.Duration // which the last event comes
		brokeOff   bool
	}{
		"its end does not come":       {sent: []watch.Event{added, bookmark}, after: streamTimeout, brokeOff: true},
		"the watch ends before it":    {sent: []watch.Event{added}, ends: true, brokeOff: true},
		"it has ended":                {sent: []watch.Event{added, listEnd, added}},
		"the watch ends later":        {sent: []watch.Event{added, listEnd}, ends: true},
		"the watch has no list":       {isFollowed: true, sent: []watch.Event{added}},
		"the watch without list ends": {isFollowed: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &apiServer{revision: "1"}
				options := metav1.ListOptions{SendInitialEvents: new(!c.isFollowed)}
				w, err := a.reader().WatchWithContext(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for _, event := range c.sent {
						a.watch.Action(event.Type, event.Object)
					}
					if c.ends {
						a.watch.Stop()
					}
				}()
				for _, want := range c.sent {
					if event := <-w.ResultChan(); event != want {
						t.Errorf("%v, not %v", event, want)
					}
				}
				select {
				case event, isOpen := <-w.ResultChan():
					brokeOff := isOpen && apierrors.IsTimeout(apierrors.FromObject(event.Object))
					if brokeOff != c.brokeOff || !brokeOff && !c.ends || time.Since(a.began) != c.after {
						t.Errorf("after %s, the last event is %v", time.Since(a.began), event)
					}
				case <-time.After(time.Hour):
					if c.brokeOff || c.ends {
						t.Error("nothing followed")
					}
				}
				w.Stop()
				synctest.Wait()
				if !a.watch.IsStopped() {
					t.Error("the API server still watches")
				}
			})
		})
	}
}

// TestReasonsFollow: what the API server answers after an outage counts from its first answer.
func TestReasonsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{}
		reader := a.reader()
		a.answer = func() error {
			switch since := time.Since(a.began); {
			case since < reportAfter-time.Second:
				return errors.New("connection refused")
			case since < reportAfter+reportAfter-2*time.Second:
				return answered(http.StatusForbidden)
			}
			return nil
		}
		if _, err := reader.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil || len(a.reported) > 0 {
			t.Errorf("%v; reported at %v", err, a.reported)
		}
	})
}

// TestReadsEnd: a list or watch that fails ends with its context.
func TestReadsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{answer: func() error { return answered(http.StatusForbidden) }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.reader().ListWithContext(ctx, metav1.ListOptions{}); err == nil ||
			time.Since(a.began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(a.began))
		}
	})
}

// TestRestore: a watch begins only if etcd has at least the revision that was read before. Otherwise it was restored,
// which is reported. That is no reason to report errors.
func TestRestore(t *testing.T) {
	for _, c := range []struct {
		read, now string
		asks      int
		restored  bool
	}{
		{"", "5", 1, false},
		{"0", "5", 1, false},
		{"1000", "1000", 2, false},
		{"999", "1000", 2, false}, // Revisions are numbers.
		{"1000", "999", 1, true},
		{"1000", "7", 1, true},
	} {
		t.Run(fmt.Sprintf("%s, %s", c.read, c.now), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &apiServer{revision: c.now}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				w, err := a.reader().WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: c.read})
				if (w == nil) != c.restored || (err != nil) != c.restored || (a.restored != nil) != c.restored {
					t.Errorf("%v, %v; reported: %v", w, err, a.restored)
				}
				if len(a.asked) != c.asks || len(a.reported) > 0 {
					t.Errorf("asked %v, with errors %v", a.options, a.reported)
				}
				if c.asks == 2 && a.options[0] != (metav1.ListOptions{Limit: 1}) {
					t.Errorf("the revision is asked for with %v", a.options[0])
				}
				want := "services: revision " + c.now + " now, " + c.read + " before"
				if c.restored && !strings.Contains(a.restored.Error(), want) {
					t.Error(a.restored)
				}
			})
		})
	}
}

// TestRevisionIsNotKnown: a watch does not begin before its revision has been compared.
func TestRevisionIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiServer{revision: "7"}
		a.answer = func() error {
			if len(a.asked) < 3 {
				return answered(http.StatusForbidden)
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _ = a.reader().WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: "1000"})
		if a.restored == nil || len(a.asked) != 3 {
			t.Errorf("asked at %v: %v", a.asked, a.restored)
		}
	})
}

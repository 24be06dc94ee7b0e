package simulation

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// patience is how long a request to write may take before its client must have given it up: that of the controllers,
// and a little.
const patience = 31 * time.Second

// slowAdmission is an admission webhook that takes its time for writes in a namespace.
type slowAdmission struct {
	resource string // "" for all
	delay    time.Duration
	// refuses is whether a write is refused then, as with the failurePolicy Fail. Otherwise it is carried out, whether
	// the client still waits or not.
	refuses bool
	until   time.Time
}

// SlowAdmission makes the admission of writes of a resource in a namespace take a while, for a time.
func (s *APIServer) SlowAdmission(namespace, resource string, delay, during time.Duration) {
	s.setSlow(namespace, slowAdmission{resource: resource, delay: delay, until: time.Now().Add(during)})
}

// setSlow makes the admission of writes in a namespace slow.
func (s *APIServer) setSlow(namespace string, slow slowAdmission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow[namespace] = slow
}

// slowFor returns how the admission of a request is slow, and whether it is.
func (s *APIServer) slowFor(r *request) (slowAdmission, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slow, has := s.slow[r.key.Namespace]
	return slow, has && time.Now().Before(slow.until) && r.Method != http.MethodGet &&
		(slow.resource == "" || slow.resource == r.table.name)
}

// admitted carries out a request other than a watch, once admission has answered.
func (e *Endpoint) admitted(r *request) (*http.Response, error) {
	slow, is := e.server.slowFor(r)
	if !is {
		return e.serve(r), nil
	}
	return carryOutLate(r, slow.delay, func() (*http.Response, error) {
		if slow.refuses {
			return refusal(r.Request, apierrors.NewInternalError(errors.New("simulated: failed calling webhook"))), nil
		}
		return e.serve(r), nil
	})
}

// slowDown makes admission slow: On is namespace,resource, and How is how long it takes, and whether it refuses then.
func slowDown(_ context.Context, w *world, s Step) {
	namespace, resource, _ := strings.Cut(s.On, ",")
	delay, then, _ := strings.Cut(s.How, ",")
	slow := slowAdmission{resource: resource, refuses: then == "refuses", until: time.Now().Add(s.For)}
	slow.delay, _ = time.ParseDuration(delay) // none if it is no duration
	w.server.setSlow(namespace, slow)
	w.guard.excuse(s.For+slow.delay, s.For+slow.delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	if slow.refuses || slow.delay > slowest {
		w.slowUntil[namespace] = later(w.slowUntil[namespace], slow.until.Add(slow.delay+retryTime))
	} else {
		w.tardy[namespace] = slow
	}
}

// speedUp makes all admission fast again. What it is asked about already still takes its time.
func (w *world) speedUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range namespaces {
		w.server.setSlow(name, slowAdmission{})
		w.slowUntil[name] = earlier(w.slowUntil[name], time.Now().Add(retryTime+patience))
	}
}

const (
	// promptly is how long it may take until everything is as it should be after a change, where the API server is
	// near. The copy of an EndpointSlice outlives its source by five seconds.
	promptly = 7 * time.Second
	// slowest is how long admission may take so that everything still is as it should be some time after each change. A
	// write of several requests must end before it is given up.
	slowest = 3 * time.Second
	// mostRequests is how many requests, one after the other, all that follows from a change may take.
	mostRequests = 30
	// lookInterval is how often it is checked whether everything is as it should be.
	lookInterval = 2 * time.Second
)

// within returns how long it may take in a namespace until everything is as it should be after a change.
func (w *world) within(namespace string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := w.history.Distance
	if slow := w.tardy[namespace]; time.Now().Before(slow.until.Add(mostRequests * slow.delay)) {
		delay += slow.delay
	}
	return promptly + mostRequests*delay
}

// look checks that everything is as it should be in the namespaces in which nothing has gone wrong or changed for a
// while, whatever goes wrong in the others.
func (w *world) look() {
	isDue := map[string]time.Duration{}
	for _, namespace := range namespaces {
		idle := w.idle(namespace)
		if idle > w.within(namespace) && time.Now().After(w.quiet(namespace)) {
			isDue[namespace] = idle
		}
	}
	if len(isDue) == 0 {
		return
	}
	w.server.mu.Lock()
	if w.server.written != w.looked {
		w.looked, w.found = w.server.written, problems(w.server)
	}
	w.server.mu.Unlock()
	for _, p := range w.found {
		if idle, is := isDue[p.namespace]; is {
			w.guard.fail("late: "+p.kind, "%s after nothing has gone wrong: %s", idle, p.what)
		}
	}
}

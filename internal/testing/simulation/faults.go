package simulation

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Outcome says what happens to a request instead of what it asks for.
type Outcome string

const (
	// Forbidden, Invalid, Conflict, Busy, Internal and Unavailable are refusals: 403, 422, 409, 429, 500 and 503.
	Forbidden   Outcome = "forbidden"
	Invalid     Outcome = "invalid"
	Conflict    Outcome = "conflict"
	Busy        Outcome = "busy"
	Internal    Outcome = "internal"
	Unavailable Outcome = "unavailable"
	// Denied is the refusal of an authorizer that knows of no role that permits the request: 403.
	Denied Outcome = "denied"
	// Away is a connection that nobody accepts.
	Away Outcome = "away"
	// Unsent is a connection that breaks before the request arrives, and Lost one that breaks before the response does.
	Unsent Outcome = "unsent"
	Lost   Outcome = "lost"
	// Hang is a request that is neither carried out nor answered, until the connection breaks, and Late one that is
	// carried out 20 s later, whether the client still waits or not.
	Hang Outcome = "hang"
	Late Outcome = "late"
	// BadGateway, GatewayTimeout and Throttled are answers without a Status, which a load balancer gives in place of the
	// API server: 502, 504 and 429.
	BadGateway     Outcome = "502"
	GatewayTimeout Outcome = "504"
	Throttled      Outcome = "429"
	// Paused is a request that is carried out when the fault is over, whether the client still waits or not.
	Paused Outcome = "paused"
)

var outcomes = []string{string(Forbidden), string(Denied), string(Invalid), string(Conflict), string(Busy),
	string(Internal), string(Unavailable), string(Unsent), string(Lost), string(Hang), string(Late),
	string(BadGateway), string(GatewayTimeout), string(Throttled)}

const (
	// lateBy is how much later a late request is carried out, and hangsFor how long a hanging connection stays.
	lateBy   = 20 * time.Second
	hangsFor = time.Minute
)

// accountName is the user name of replicas.
const accountName = "system:serviceaccount:kube-system:local-service-controller"

var errConnection = errors.New("simulated: connection reset by peer")

// Fault is something that goes wrong with some requests of an endpoint.
type Fault struct {
	Outcome Outcome
	// Verb and Resource choose the requests. A resource may have a subresource, as in localservices/status. Empty ones
	// match all requests but watches.
	Verb, Resource string
	// Name is a substring of the names of the objects.
	Name  string
	Until time.Time
	// Answer, without an Outcome, returns the error with which a request about an object of this name is refused, nil
	// to carry it out. It may take a while.
	Answer func(name string) error
}

func (f *Fault) hits(r *request) bool {
	resource := r.table.name
	if r.subresource != "" {
		resource += "/" + r.subresource
	}
	return time.Now().Before(f.Until) && (f.Resource == "" || f.Resource == resource) &&
		(f.Verb == "" && r.verb != "watch" || f.Verb == r.verb) &&
		strings.Contains(r.key.String(), f.Name)
}

// Request is a request that an endpoint has received.
type Request struct {
	At   time.Time
	What string
}

// crash says at which write a replica crashes.
type crash struct {
	writes  int // that are carried out before it
	after   bool
	crashed chan struct{}
}

// Fail makes a fault happen from now on.
func (e *Endpoint) Fail(f Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, f)
}

// Crash cuts the replica off after a number of writes, at the next one: before or after it is carried out. The channel
// is closed then.
func (e *Endpoint) Crash(writes int, after bool) (crashed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.crash = &crash{writes: writes, after: after, crashed: make(chan struct{})}
	return e.crash.crashed
}

// Kill cuts the replica off for good.
func (e *Endpoint) Kill() {
	e.mu.Lock()
	e.isDead = true
	e.mu.Unlock()
	e.breakAll()
}

// Heal ends all faults, lags and stalls.
func (e *Endpoint) Heal() {
	e.mu.Lock()
	e.faults = nil
	e.mu.Unlock()
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	for _, v := range e.views {
		v.lag, v.stalledUntil = usualLag(v.name), time.Time{}
		v.wake()
	}
}

// Requests returns the requests that the endpoint has received since a time, without watches, and without the lists of
// one object with which they begin.
func (e *Endpoint) Requests(since time.Time) []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, _ := slices.BinarySearchFunc(e.requests, since, func(r Request, at time.Time) int { return r.At.Compare(at) })
	return slices.Clone(e.requests[i:])
}

func (e *Endpoint) record(r *request) {
	if r.verb == "watch" || r.query.Get("limit") == "1" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, Request{At: time.Now(), What: r.String()})
}

// strike returns the fault that hits a request, and whether it is the write at which the replica crashes.
func (e *Endpoint) strike(r *request) (hit Fault, isCrash *crash) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isDead {
		return Fault{Outcome: Unsent}, nil
	}
	if c := e.crash; c != nil && r.isWork() {
		if c.writes--; c.writes < 0 {
			e.isDead, e.crash = true, nil
			return Fault{}, c
		}
	}
	if outcome := e.server.outcome(); outcome != "" {
		return Fault{Outcome: outcome}, nil
	}
	if i := slices.IndexFunc(e.faults, func(f Fault) bool { return f.hits(r) }); i >= 0 {
		return e.faults[i], nil
	}
	return Fault{}, nil
}

// carryOut carries out a request, unless something goes wrong.
func (e *Endpoint) carryOut(r *request, do func() (*http.Response, error)) (*http.Response, error) {
	fault, crash := e.strike(r)
	// Lost patches of Services do not count: while admission gives each of them another effect, they are repeated all
	// the time.
	if fault.Outcome != Lost || r.verb != "patch" || r.table.name != "services" {
		defer e.record(r)
	}
	if crash != nil {
		if crash.after {
			_, _ = do()
		}
		close(crash.crashed)
		return nil, errConnection
	}
	switch fault.Outcome {
	case "":
		if fault.Answer != nil {
			if err := fault.Answer(r.key.Name); err != nil {
				return refusal(r.Request, err), nil
			}
		}
		response, err := do()
		if !e.server.isAway() {
			return response, err
		} else if balanced := e.server.outcome().balanced(r.Request); balanced != nil {
			return balanced, nil
		}
		return nil, errConnection
	case Away:
		return nil, errAway
	case BadGateway, GatewayTimeout, Throttled:
		return fault.Outcome.balanced(r.Request), nil
	case Unsent:
		return nil, errConnection
	case Lost:
		_, _ = do()
		return nil, errConnection
	case Hang:
		if err := sleep(r.Request, hangsFor); err != nil {
			return nil, err
		}
		return nil, errConnection
	case Late:
		return carryOutLate(r, lateBy, do)
	case Paused:
		return carryOutLate(r, time.Until(fault.Until), do)
	}
	return refusal(r.Request, fault.Outcome.error(r)), nil
}

func carryOutLate(r *request, by time.Duration, do func() (*http.Response, error)) (*http.Response, error) {
	type result struct {
		response *http.Response
		err      error
	}
	done := make(chan result, 1)
	late := r.Request
	r.Request = r.Clone(r.Context()) // The client may cancel the request.
	r.Body = late.Body
	time.AfterFunc(by, func() {
		response, err := do() //nolint:bodyclose // The client closes it.
		done <- result{response, err}
	})
	select {
	case <-late.Context().Done():
		return nil, late.Context().Err()
	case result := <-done:
		return result.response, result.err
	}
}

// balanced returns the answer of a load balancer that an outcome stands for, nil if it stands for none.
func (o Outcome) balanced(r *http.Request) *http.Response {
	code, err := strconv.Atoi(string(o))
	if err != nil {
		return nil
	}
	response := answer(r, code, []byte("<html><body>"+http.StatusText(code)+"</body></html>"))
	response.Header.Set("Content-Type", "text/html")
	return response
}

// error returns the refusal that an outcome stands for.
func (o Outcome) error(r *request) error {
	resource, name, because := r.table.groupResource(), r.key.Name, errors.New("simulated")
	switch o {
	case Denied:
		if r.verb == "create" {
			name = "" // It is in the body, which an authorizer does not read.
		}
		text := fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q", accountName, r.verb,
			resource.Resource, resource.Group, r.key.Namespace)
		return apierrors.NewForbidden(resource, name, errors.New(text))
	case Forbidden:
		return apierrors.NewForbidden(resource, name, because)
	case Invalid:
		return r.table.invalid(name, field.Invalid(field.NewPath("spec"), name, because.Error()))
	case Conflict:
		return apierrors.NewConflict(resource, name, because)
	case Busy:
		return apierrors.NewTooManyRequests(because.Error(), 1)
	case Unavailable:
		return apierrors.NewServiceUnavailable(because.Error())
	}
	return apierrors.NewInternalError(because)
}

func hash(values ...any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, values...) // It never fails.
	return h.Sum64()
}

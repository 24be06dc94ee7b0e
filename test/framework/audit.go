package framework

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// controllerAgent begins the user agent of the controller's requests.
const controllerAgent = "local-service-controller/"

// Request is a request that the API server has answered, from its audit log. ObjectRef and ResponseStatus are never
// nil.
type Request = auditv1.Event

// Resource returns the resource that a request is about, with the subresource if there is one: localservices/status.
func Resource(r *Request) string {
	if r.ObjectRef.Subresource != "" {
		return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	}
	return r.ObjectRef.Resource
}

// Succeeded reports whether a request had its effect.
func Succeeded(r *Request) bool { return r.ResponseStatus.Code < http.StatusBadRequest }

// Audit is the API server's log of all requests that it has answered. The log is written before the response is
// complete, so a client that has the response finds the request in the log. A client that sees only the effect of a
// request may be ahead of the log.
type Audit struct {
	path string

	mu       sync.Mutex
	offset   int64
	requests Requests
}

// Mark is a position in an audit log.
type Mark int

// Mark returns the position after the last request so far.
func (a *Audit) Mark() Mark { return Mark(len(a.Since(0))) }

// Since returns the requests after a mark.
func (a *Audit) Since(mark Mark) Requests {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		// Tests that expect no requests must not pass.
		panic(fmt.Sprintf("the audit log cannot be read: %v", err))
	}
	return slices.Clip(a.requests[mark:])
}

// read reads what has been written since the last call.
func (a *Audit) read() error {
	f, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() < a.offset {
		return fmt.Errorf("%s has been rotated: more requests than can be counted", a.path)
	}
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // Still being written.
		}
		a.offset += int64(len(line))
		r, err := parseRequest(line)
		if err != nil {
			return fmt.Errorf("%s: %w in %s", a.path, err, line)
		}
		a.requests = append(a.requests, r)
	}
	return nil
}

// parseRequest parses a line of the log, without fields that nobody needs: there may be a million lines.
func parseRequest(line []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return Request{}, err
	}
	r.Annotations, r.SourceIPs, r.User.Groups, r.User.Extra = nil, nil, nil, nil
	if r.ObjectRef == nil {
		r.ObjectRef = &auditv1.ObjectReference{} // A request for no resource, such as /readyz.
	}
	if r.ResponseStatus == nil {
		r.ResponseStatus = &metav1.Status{}
	}
	return r, nil
}

// Requests are requests to the API server, in the order of its answers.
type Requests []Request

// Where returns the requests for which keep is true.
func (rs Requests) Where(keep func(*Request) bool) Requests {
	var kept Requests
	for i := range rs {
		if keep(&rs[i]) {
			kept = append(kept, rs[i])
		}
	}
	return kept
}

// ByController returns the requests of local-service-controllers.
func (rs Requests) ByController() Requests { return rs.By(controllerAgent) }

// By returns the requests of clients whose user agent has this prefix.
func (rs Requests) By(agent string) Requests {
	return rs.Where(func(r *Request) bool { return strings.HasPrefix(r.UserAgent, agent) })
}

// Namespace returns the requests about a namespace.
func (rs Requests) Namespace(namespace string) Requests {
	return rs.Where(func(r *Request) bool { return r.ObjectRef.Namespace == namespace })
}

// Resource returns the requests about a resource, such as services or localservices/status.
func (rs Requests) Resource(resource string) Requests {
	return rs.Where(func(r *Request) bool { return Resource(r) == resource })
}

// Name returns the requests about an object with this name. A request that creates an object does not always name it.
func (rs Requests) Name(name string) Requests {
	return rs.Where(func(r *Request) bool { return r.ObjectRef.Name == name })
}

// Verb returns the requests with one of these verbs.
func (rs Requests) Verb(verbs ...string) Requests {
	return rs.Where(func(r *Request) bool { return slices.Contains(verbs, r.Verb) })
}

// First returns when the first of the requests was received, the zero time if there is none.
func (rs Requests) First() (first time.Time) {
	for i := range rs {
		if received := rs[i].RequestReceivedTimestamp.Time; first.IsZero() || received.Before(first) {
			first = received
		}
	}
	return first
}

// Last returns when the last of the requests was answered, the zero time if there is none.
func (rs Requests) Last() (last time.Time) {
	for i := range rs {
		if answered := rs[i].StageTimestamp.Time; answered.After(last) {
			last = answered
		}
	}
	return last
}

// Writes returns the requests that change objects, whether they succeeded or not. Dry runs change none; leases and
// access reviews are not about the controller's work.
func (rs Requests) Writes() Requests {
	return rs.Where(func(r *Request) bool {
		return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) &&
			!strings.Contains(r.RequestURI, "dryRun=") && r.ObjectRef.Resource != "leases" &&
			r.ObjectRef.Resource != "selfsubjectaccessreviews"
	})
}

// String counts the requests by what they are, for messages: "3 create services 201, 1 patch pods 200".
func (rs Requests) String() string {
	counts := map[string]int{}
	var order []string
	for i := range rs {
		what := fmt.Sprintf("%s %s %d", rs[i].Verb, Resource(&rs[i]), rs[i].ResponseStatus.Code)
		if counts[what] == 0 {
			order = append(order, what)
		}
		counts[what]++
	}
	if len(order) == 0 {
		return "none"
	}
	for i, what := range order {
		order[i] = fmt.Sprintf("%d %s", counts[what], what)
	}
	return strings.Join(order, ", ")
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// User agents of the requests that are looked at. Those of heartbeats are not: there are too many.
const (
	ourAgent       = "local-service-controller/"
	loadAgent      = "bench-load"
	floorAgent     = "bench-floor"
	heartbeatAgent = "heartbeat"
	schedulerAgent = "kube-scheduler/"
)

// auditPollInterval is how often the audit log is looked at while something is waited for.
const auditPollInterval = 25 * time.Millisecond

// request is a request that the API server has answered, with the API server's own times.
type request struct {
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	UserAgent string `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
}

func (r *request) resource() string {
	if r.Object.Subresource != "" {
		return r.Object.Resource + "/" + r.Object.Subresource
	}
	return r.Object.Resource
}

// auditLog reads the API server's audit log while it grows. It is not safe for concurrent use.
type auditLog struct {
	path     string
	offset   int64
	requests requests
}

// mark is the position after the last request so far.
func (a *auditLog) mark() (int, error) {
	err := a.read()
	return len(a.requests), err
}

// since are the requests after a mark.
func (a *auditLog) since(mark int) (requests, error) {
	err := a.read()
	return a.requests[mark:], err
}

// waitFor waits until n requests after a mark match, and returns those that do.
func (a *auditLog) waitFor(ctx context.Context, mark, n int, what string, match filter) (requests, error) {
	ticker := time.NewTicker(auditPollInterval)
	defer ticker.Stop()
	var found requests
	for next := mark; ; {
		more, err := a.since(next)
		if err != nil {
			return nil, err
		}
		next += len(more)
		if found = append(found, more.where(match)...); len(found) >= n {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %d %s, of which there were %d: %w", n, what, len(found), context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// waitQuiet waits until the controller has sent no request for a while, but for those that keep its Lease.
func (a *auditLog) waitQuiet(ctx context.Context, quiet time.Duration) error {
	ticker := time.NewTicker(auditPollInterval)
	defer ticker.Stop()
	next, err := a.mark()
	for last := time.Now(); err == nil && time.Since(last) < quiet; {
		var more requests
		if more, err = a.since(next); more.count(ourWork) > 0 {
			last = time.Now()
		}
		next += len(more)
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the controller rests: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
	return err
}

// read takes in what has been written since it was last called.
func (a *auditLog) read() error {
	f, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	} else if info.Size() < a.offset {
		return fmt.Errorf("%s has become shorter: it has been rotated", a.path)
	}
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	for lines := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil // The rest of a line is still being written.
		}
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		a.offset += int64(len(line))
		if !slices.ContainsFunc(agentMarks, func(mark []byte) bool { return bytes.Contains(line, mark) }) {
			continue
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%s: %w in %s", a.path, err, line)
		}
		a.requests = append(a.requests, r)
	}
}

// agentMarks are in the lines of the requests that are looked at.
var agentMarks = [][]byte{
	[]byte(`"userAgent":"` + ourAgent), []byte(`"userAgent":"` + loadAgent), []byte(`"userAgent":"` + floorAgent), []byte(`"userAgent":"` + schedulerAgent),
}

// requests are requests in the order of their answers.
type requests []request

type filter func(*request) bool

func (rs requests) where(keep filter) requests {
	var kept requests
	for i := range rs {
		if keep(&rs[i]) {
			kept = append(kept, rs[i])
		}
	}
	return kept
}

// count is how many requests match.
func (rs requests) count(match filter) int { return len(rs.where(match)) }

// span is the time from when the first request was received to when the last one was answered.
func (rs requests) span() time.Duration {
	return rs.last().Sub(rs.first())
}

// first is when the first request was received, the zero time if there is none.
func (rs requests) first() (first time.Time) {
	for i := range rs {
		if first.IsZero() || rs[i].Received.Before(first) {
			first = rs[i].Received
		}
	}
	return first
}

// last is when the last request was answered, the zero time if there is none.
func (rs requests) last() (last time.Time) {
	for i := range rs {
		if rs[i].Answered.After(last) {
			last = rs[i].Answered
		}
	}
	return last
}

// all matches the requests that all filters match.
func all(filters ...filter) filter {
	return func(r *request) bool {
		return !slices.ContainsFunc(filters, func(f filter) bool { return !f(r) })
	}
}

func by(agent string) filter {
	return func(r *request) bool { return strings.HasPrefix(r.UserAgent, agent) }
}

func in(namespace string) filter {
	return func(r *request) bool { return r.Object.Namespace == namespace }
}

// verb matches the requests that did this to that resource, whether or not they succeeded.
func verb(verb, resource string) filter {
	return func(r *request) bool { return r.Verb == verb && r.resource() == resource }
}

// done matches the requests that have succeeded.
func done(r *request) bool { return r.Response.Code >= 200 && r.Response.Code < 300 }

var byUs = by(ourAgent)

var ourWork = all(byUs, func(r *request) bool { return r.Object.Resource != "leases" })

// ourWrites matches what the controller writes. Leases, and the access reviews at its start, change nothing.
var ourWrites = all(byUs, func(r *request) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) &&
		r.Object.Resource != "leases" && r.Object.Resource != "selfsubjectaccessreviews"
})

// ourLists matches the lists that the controller has asked for in a time, also those that begin a watch. The latter are
// in the log only when the watch has ended: stop the controller before counting.
func ourLists(from, to time.Time) filter {
	return all(byUs, func(r *request) bool {
		return (r.Verb == "list" || r.Verb == "watch" && strings.Contains(r.URI, "sendInitialEvents=true")) &&
			r.Received.After(from) && r.Received.Before(to)
	})
}

// ourServiceChanges matches the writes of Services other than creates.
var ourServiceChanges = all(ourWrites, func(r *request) bool { return r.Object.Resource == "services" && r.Verb != "create" })

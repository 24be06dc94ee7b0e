package simulation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// bookmarkInterval is how often a watch reports the version up to which it has sent all changes.
	bookmarkInterval = time.Minute
	// freshTimeout is how long the API server waits for its watch cache before it gives up.
	freshTimeout = 3 * time.Second
)

// view holds what an endpoint sees of a resource: its watches may be late.
type view struct {
	*table
	lag          time.Duration
	stalledUntil time.Time
	streams      map[*stream]bool
}

// Stall makes the watches of a resource send nothing for a while, and then everything.
func (e *Endpoint) Stall(resource string, d time.Duration) {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	e.views[resource].stalledUntil = time.Now().Add(d)
}

// Lag makes the watches of a resource send everything with this delay, from now on.
func (e *Endpoint) Lag(resource string, d time.Duration) {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	e.views[resource].lag = d
}

// Break ends the watches of a resource, so that clients restart them: from where they were or, if the log is compacted,
// with a list.
func (e *Endpoint) Break(resource string, compact bool) {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	v := e.views[resource]
	if compact {
		v.compacted = e.server.version
	}
	for s := range v.streams {
		s.end()
	}
}

// breakAll ends all watches.
func (e *Endpoint) breakAll() {
	for resource := range e.views {
		e.Break(resource, false)
	}
}

func (v *view) isStalled() bool { return time.Now().Before(v.stalledUntil) }

// selection describes what a list or a watch asks for.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (r *request) selection() (selection, error) {
	query := r.query
	s := selection{namespace: r.key.Namespace}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

func (s *selection) matches(e *entry) bool {
	if e == nil || s.namespace != "" && e.object.GetNamespace() != s.namespace ||
		!s.labels.Matches(labels.Set(e.object.GetLabels())) {
		return false
	}
	if s.fields.Empty() {
		return true
	}
	set := fields.Set{"metadata.name": e.object.GetName(), "metadata.namespace": e.object.GetNamespace()}
	if pod, ok := e.object.(*corev1.Pod); ok {
		set["spec.nodeName"], set["status.phase"] = pod.Spec.NodeName, string(pod.Status.Phase)
	}
	return s.fields.Matches(set)
}

// list answers a list request with what is stored. No client asks for what the watch cache has: caches begin with a
// watch that lists.
func (e *Endpoint) list(r *request) *http.Response {
	selected, err := r.selection()
	if err != nil {
		return refusal(r.Request, err)
	}
	entries := slices.DeleteFunc(slices.Clone(r.table.sorted()), func(e *entry) bool { return !selected.matches(e) })
	version := strconv.FormatInt(e.server.version, 10)
	return answer(r.Request, http.StatusOK, encodeList(r.table, entries, version, wantsMetadata(r.Request)))
}

// stream is the body of the response to a watch. Its events are taken from the log when it is read.
type stream struct {
	endpoint  *Endpoint
	view      *view
	selection selection
	ctx       context.Context
	bookmarks bool
	// metadataOnly is whether the client wants no more of the objects.
	metadataOnly bool

	position int    // in the log
	buffer   []byte // what is to be read next
	ends     time.Time
	marked   time.Time // when the last bookmark was due
	written  int       // how many writes there were then
	ended    chan struct{}
	isEnded  bool
}

// watch begins a watch.
func (e *Endpoint) watch(r *request) (*http.Response, error) {
	query, v := r.query, e.views[r.table.name]
	isList := query.Get("sendInitialEvents") == "true"
	selected, err := r.selection()
	if err != nil {
		return refusal(r.Request, err), nil
	}
	if isList { // A streamed list is never older than what is stored at the request.
		deadline := time.Now().Add(freshTimeout)
		for e.isStalled(v) {
			if time.Now().After(deadline) {
				tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
				tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
				return refusal(r.Request, tooLarge), nil
			}
			if err := sleep(r.Request, 50*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	s := &stream{endpoint: e, view: v, selection: selected, ctx: r.Context(),
		bookmarks: query.Get("allowWatchBookmarks") == "true" && !e.DropsBookmarks.Load(), metadataOnly: wantsMetadata(r.Request),
		ended:  make(chan struct{}),
		marked: time.Now(), ends: time.Now().Add(time.Hour)}
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		s.ends = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	since, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	if since > 0 && since < v.compacted && !isList {
		return refusal(r.Request, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", since,
			v.compacted))), nil
	}
	if isList {
		s.begin()
	} else {
		s.position, _ = slices.BinarySearchFunc(v.log, since+1, func(c change, version int64) int {
			return int(c.version - version)
		})
	}
	v.streams[s] = true
	response := answer(r.Request, http.StatusOK, nil)
	response.Body, response.ContentLength = s, -1
	return response, nil
}

func (e *Endpoint) isStalled(v *view) bool {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	return v.isStalled()
}

// begin makes a stream start with everything that is stored, and then a bookmark that says so.
func (s *stream) begin() {
	s.position = len(s.view.log)
	for _, e := range s.view.sorted() {
		if s.selection.matches(e) {
			s.buffer = append(s.buffer, encodeEvent(watch.Added, e.encoded(s.metadataOnly))...)
		}
	}
	if s.bookmarks {
		s.buffer = append(s.buffer, s.bookmark(s.endpoint.server.version,
			map[string]string{metav1.InitialEventsAnnotationKey: "true"})...)
	}
}

// bookmark returns an event with the version up to which all changes have been sent.
func (s *stream) bookmark(version int64, annotations map[string]string) []byte {
	object := s.view.newObject()
	object.GetObjectKind().SetGroupVersionKind(s.view.kind)
	object.SetResourceVersion(strconv.FormatInt(version, 10))
	object.SetAnnotations(annotations)
	s.marked = time.Now()
	return encodeEvent(watch.Bookmark, encodeJSON(partOf(object, s.metadataOnly)))
}

// Read returns the next events once they are due.
func (s *stream) Read(p []byte) (int, error) {
	for {
		s.endpoint.server.mu.Lock()
		wait := s.fill()
		changed := s.view.changed
		if len(s.buffer) > 0 {
			n := copy(p, s.buffer)
			s.buffer = s.buffer[n:]
			s.endpoint.server.mu.Unlock()
			return n, nil
		}
		s.endpoint.server.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return 0, io.EOF
		case <-s.ended:
			timer.Stop()
			return 0, io.EOF
		case <-changed:
			timer.Stop()
		case <-timer.C:
			if !time.Now().Before(s.ends) {
				return 0, io.EOF
			}
		}
	}
}

// fill adds the events that are due to the buffer, and returns how long to wait at most until there may be more.
func (s *stream) fill() time.Duration {
	now := time.Now()
	ends := s.ends.Sub(now)
	if left := s.view.stalledUntil.Sub(now); left > 0 {
		return min(ends, left)
	}
	for s.position < len(s.view.log) && len(s.buffer) == 0 {
		c := &s.view.log[s.position]
		if left := c.at.Add(s.view.lag + s.endpoint.server.distance).Sub(now); left > 0 {
			return min(ends, left)
		}
		s.position++
		s.send(c)
	}
	if len(s.buffer) > 0 || now.Before(s.marked.Add(bookmarkInterval)) {
		return min(ends, s.marked.Add(bookmarkInterval).Sub(now))
	}
	s.marked = now
	if written := s.endpoint.server.written; s.bookmarks && written != s.written { // Another one would say nothing new.
		s.written = written
		s.buffer = append(s.buffer, s.bookmark(s.endpoint.server.version, nil)...)
	}
	return min(ends, bookmarkInterval)
}

// send adds the event of a change: an object that the selection did not match before is added, and the reverse.
func (s *stream) send(c *change) {
	was, is := s.selection.matches(c.before), s.selection.matches(c.after)
	switch {
	case !was && is:
		s.buffer = append(s.buffer, encodeEvent(watch.Added, c.after.encoded(s.metadataOnly))...)
	case was && is:
		s.buffer = append(s.buffer, encodeEvent(watch.Modified, c.after.encoded(s.metadataOnly))...)
	case was: // as it was last, at the version of its deletion
		gone := c.before.object.DeepCopyObject().(Object)
		gone.SetResourceVersion(strconv.FormatInt(c.version, 10))
		s.buffer = append(s.buffer, encodeEvent(watch.Deleted, encodeJSON(partOf(gone, s.metadataOnly)))...)
	}
}

// Close ends the stream for its client.
func (s *stream) Close() error {
	s.endpoint.server.mu.Lock()
	defer s.endpoint.server.mu.Unlock()
	s.end()
	return nil
}

func (s *stream) end() {
	if !s.isEnded {
		s.isEnded = true
		close(s.ended)
		delete(s.view.streams, s)
	}
}

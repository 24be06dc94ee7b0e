package simulation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Endpoint is the API server as one replica reaches it, with its own latencies, watches and faults.
type Endpoint struct {
	server *APIServer
	name   string // of the replica
	seed   uint64
	views  map[string]*view // by resource
	// DropsBookmarks makes watches lack bookmarks, as some proxies do.
	DropsBookmarks atomic.Bool

	mu       sync.Mutex // of the fields below
	faults   []Fault
	crash    *crash
	isDead   bool
	requests []Request
	received map[string]int // how often, by request
}

// NewEndpoint returns an endpoint of the API server for a replica. The seed determines the latencies of requests.
func (s *APIServer) NewEndpoint(name string, seed uint64) *Endpoint {
	e := &Endpoint{server: s, name: name, seed: seed, views: map[string]*view{}, received: map[string]int{}}
	for resource := range s.tables {
		e.views[resource] = &view{table: s.tables[resource], lag: usualLag(resource), streams: map[*stream]bool{}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints = append(s.endpoints, e)
	return e
}

// Config returns the configuration of clients that reach the API server here.
func (e *Endpoint) Config() *rest.Config {
	return &rest.Config{Host: "http://simulated", Transport: e, QPS: -1}
}

// request is a parsed request.
type request struct {
	*http.Request
	verb        string // of RBAC
	table       *table // nil if the path is not that of a resource
	key         types.NamespacedName
	subresource string
	query       url.Values
}

// isWork reports whether the request may change what the controllers are for.
func (r *request) isWork() bool {
	return r.Method != http.MethodGet && !r.isDryRun() && r.table.name != "leases" && r.table.name != "events"
}

func (r *request) isDryRun() bool { return r.query.Get("dryRun") != "" }

func (r *request) String() string {
	out := r.verb + " " + r.table.name
	if r.subresource != "" {
		out += "/" + r.subresource
	}
	if r.key.Name != "" {
		out += " " + strings.TrimPrefix(r.key.String(), "/")
	}
	if r.isDryRun() {
		out += " (dry run)"
	}
	return out
}

var requestInfos = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

// parse parses a request with the API server's own code. No request is for a namespace.
func (s *APIServer) parse(r *http.Request) (*request, error) {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	return &request{Request: r, verb: info.Verb, table: s.tables[info.Resource], subresource: info.Subresource,
		key: types.NamespacedName{Namespace: info.Namespace, Name: info.Name}, query: r.URL.Query()}, nil
}

// RoundTrip carries out a request.
func (e *Endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := e.server.parse(r)
	if err != nil {
		return nil, err
	}
	if request.table == nil { // Discovery: there are no optional resources.
		return answer(r, http.StatusOK, []byte(`{"kind":"APIResourceList"}`)), nil
	}
	if r.Method == http.MethodPost && request.key.Name == "" {
		if err := nameFromBody(request); err != nil {
			return refusal(r, apierrors.NewBadRequest(err.Error())), nil
		}
	}
	began := time.Now()
	response, err := e.send(request)
	if request.verb != "watch" {
		e.report(answered{request, time.Since(began), err != nil || response.StatusCode >= http.StatusBadRequest})
	}
	return response, err
}

// send sends a request to the API server, and returns its answer.
func (e *Endpoint) send(request *request) (*http.Response, error) {
	r, latency := request.Request, e.latency(request)
	if err := sleep(r, latency); err != nil {
		return nil, err
	}
	return e.carryOut(request, func() (*http.Response, error) {
		if request.verb == "watch" {
			return e.watch(request)
		}
		response, err := e.admitted(request)
		if err != nil {
			return nil, err
		}
		if err := sleep(r, latency); err != nil {
			return nil, err
		}
		return response, nil
	})
}

func (e *Endpoint) report(a answered) {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	for _, observe := range e.server.answers {
		observe(e.name, a)
	}
}

// nameFromBody reads the name of the object to create from the body, so that faults and latencies can depend on it.
func nameFromBody(r *request) error {
	body, err := readBody(r.Request)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	object := r.table.newObject()
	if err := decode(r.Request, object); err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.key.Name = object.GetName()
	if r.key.Name == "" {
		r.key.Name = object.GetGenerateName()
	}
	return nil
}

func sleep(r *http.Request, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return r.Context().Err()
	case <-timer.C:
		return nil
	}
}

// latency returns half the duration of a request. Every request has its own, so that no two happen at the same moment.
func (e *Endpoint) latency(r *request) time.Duration {
	const least, spread = 700 * time.Microsecond, 3 * time.Millisecond
	what := r.String()
	e.mu.Lock()
	e.received[what]++
	n := e.received[what]
	e.mu.Unlock()
	return e.server.distance/2 + least + time.Duration(hash(e.seed, e.name, what, n)%uint64(spread))
}

// serve carries out a request other than a watch.
func (e *Endpoint) serve(r *request) *http.Response {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	for _, observe := range e.server.requests {
		observe(e.name, r)
	}
	var object Object
	var err error
	code := http.StatusOK
	switch r.verb {
	case "list":
		return e.list(r)
	case "get":
		if stored := r.table.objects[r.key]; stored != nil {
			return answer(r.Request, code, stored.encoded(wantsMetadata(r.Request)))
		}
		err = apierrors.NewNotFound(r.table.groupResource(), r.key.Name)
	case "create":
		code, object = http.StatusCreated, r.table.newObject()
		if err = decode(r.Request, object); err == nil {
			object.SetNamespace(r.key.Namespace)
			sent := object
			if object, err = e.server.create(e.name, r.table, object, r.isDryRun()); err != nil {
				object = sent
			}
		}
	case "update":
		object, err = e.server.update(r.update(e.name), func(Object) (Object, error) {
			object := r.table.newObject()
			return object, decode(r.Request, object)
		})
	case "patch":
		object, err = e.server.update(r.update(e.name), r.patch)
	case "delete":
		options := &metav1.DeleteOptions{}
		if err = decode(r.Request, options); err == nil {
			err = e.server.delete(e.name, r.table, r.key, options)
		}
		if err == nil {
			return answer(r.Request, code, encodeJSON(&metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}))
		}
	}
	if err != nil {
		for _, observe := range e.server.refusals {
			observe(refused{r, e.name, object, err})
		}
		return refusal(r.Request, err)
	}
	object.GetObjectKind().SetGroupVersionKind(r.table.kind)
	return answer(r.Request, code, encodeJSON(partOf(object, wantsMetadata(r.Request))))
}

func (r *request) update(by string) update {
	return update{table: r.table, by: by, key: r.key, subresource: r.subresource}
}

// patch applies the patch that a request sends. A strategic merge patch, which is sent only for events, is treated as a
// merge patch.
func (r *request) patch(old Object) (Object, error) {
	patch, err := readBody(r.Request)
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(encodeJSON(old), patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	object := r.table.newObject()
	if err := json.Unmarshal(after, object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return object, nil
}

func encodeJSON(object any) []byte {
	encoded, err := json.Marshal(object)
	utilruntime.Must(err)
	return encoded
}

func answer(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Request: r,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
}

// refusal returns the response for an error.
func refusal(r *http.Request, err error) *http.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	response := answer(r, int(body.Code), encodeJSON(&body))
	if body.Details != nil && body.Details.RetryAfterSeconds > 0 {
		response.Header.Set("Retry-After", fmt.Sprint(body.Details.RetryAfterSeconds))
	}
	return response
}

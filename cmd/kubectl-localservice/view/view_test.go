package view

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

func list(name, groupBy string, items ...*diagnose.Node) *diagnose.NodeList {
	return &diagnose.NodeList{Namespace: "default", LocalService: name, Mode: "Services", GroupBy: groupBy,
		Items: items}
}

func item(node string, ready, total int, reason diagnose.Reason) *diagnose.Node {
	finding := diagnose.Finding{Reason: reason, State: diagnose.Healthy}
	switch {
	case reason == diagnose.NodeWithoutName:
		finding.State = diagnose.Empty
	case reason != "" && ready > 0:
		finding.State = diagnose.Degraded
	case reason != "":
		finding.State, finding.Cause = diagnose.Down, "exit code 1"
	}
	return &diagnose.Node{Node: node, Endpoints: diagnose.Endpoints{Ready: ready, Total: total}, Finding: finding}
}

func matrix(lists ...*diagnose.NodeList) *Matrix {
	return NewMatrix(Status{Loaded: true}, lists, nil)
}

// TestUpdates: only changes are sent.
func TestUpdates(t *testing.T) {
	before := matrix(list("same", "", item("n1", 1, 1, "")), list("gone", "", item("n1", 1, 1, "")),
		list("demo", "", item("n1", 1, 1, ""), item("n2", 1, 1, ""), item("n3", 0, 0, diagnose.NoPods)))
	now := matrix(list("same", "", item("n1", 1, 1, "")),
		list("new", "zone", item("a", 2, 2, ""), item("A", 0, 0, diagnose.NameConflict),
			item("n9", 0, 0, diagnose.NodeWithoutName)),
		list("demo", "", item("n1", 1, 1, ""), item("n2", 0, 1, diagnose.PodsNotReady),
			item("n4", 1, 2, diagnose.PodsNotReady)))
	now.Problems = []string{"no"}
	column := func(name, groupBy string, cells map[string]*Cell) map[string]*Column {
		return map[string]*Column{"default/" + name: {Namespace: "default", Name: name, Mode: "Services",
			GroupBy: groupBy, Cells: cells, Notices: []diagnose.Notice{{}}}}
	}
	want := []Update{
		{Columns: column("demo", "", map[string]*Cell{
			"n2": {diagnose.Finding{State: diagnose.Down, Reason: diagnose.PodsNotReady, Cause: "exit code 1"},
				diagnose.Endpoints{Total: 1}},
			"n3": nil,
			"n4": {diagnose.Finding{State: diagnose.Degraded, Reason: diagnose.PodsNotReady},
				diagnose.Endpoints{Ready: 1, Total: 2}},
		})},
		{Columns: map[string]*Column{"default/gone": nil}},
		{Columns: column("new", "zone", map[string]*Cell{
			"zone=a": {diagnose.Finding{State: diagnose.Healthy}, diagnose.Endpoints{Ready: 2, Total: 2}},
			"zone=A": {Finding: diagnose.Finding{State: diagnose.Down, Reason: diagnose.NameConflict, Cause: "exit code 1"}},
			"n9":     {Finding: diagnose.Finding{State: diagnose.Empty, Reason: diagnose.NodeWithoutName}},
		})},
		{Status: &Status{Loaded: true, Problems: []string{"no"}}},
	}
	if diff := cmp.Diff(want, Updates(before, now)); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	if got := Updates(now, now); got != nil {
		t.Errorf("of what is the same: %v", got)
	}
	messages := list("same", "", item("n1", 1, 1, ""))
	messages.Notices = []diagnose.Notice{{Message: "The cluster has no node"}}
	columns := maps.Clone(before.Columns)
	columns["default/same"] = NewColumn(messages)
	now = &Matrix{Status: before.Status, Columns: columns}
	if got := Updates(before, now); len(got) != 1 || len(got[0].Columns["default/same"].Cells) > 0 {
		t.Errorf("of a message: %+v", got)
	}
}

func newTestServer(t *testing.T) (*Server, func(path, host string) *http.Response) {
	t.Helper()
	s, err := NewServer(Scope{Namespace: "default"}, func(_ context.Context, column, row string) *Details {
		if column != "default/demo" {
			return nil
		}
		return &Details{Node: &diagnose.Node{Node: row}}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, func(path, host string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.listener.Addr().String()+path,
			nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
}

// TestAccess: data requires the token, and requests for another host name get nothing.
func TestAccess(t *testing.T) {
	s, get := newTestServer(t)
	address, token, _ := strings.Cut(strings.TrimPrefix(s.URL(), "http://"), "/#")
	_, port, _ := strings.Cut(address, ":")
	for _, c := range []struct {
		path, host string
		want       int
	}{
		{"/", address, 200},
		{"/", "localhost:" + port, 200},
		{"/page.js", address, 200},
		{"/nothing", address, 404},
		{"/", "evil.example:" + port, 421},
		{"/", "127.0.0.1:1", 421},
		{"/", "127.0.0.1", 421},
		{"/cell?column=default/demo&row=n1&token=" + token, "evil.example:" + port, 421},
		{"/events", address, 403},
		{"/events?token=", address, 403},
		{"/events?token=" + token[1:], address, 403},
		{"/events?token=" + token, address, 200},
		{"/cell?column=default/demo&row=n1", address, 403},
		{"/cell?column=default/demo&row=n1&token=" + token, address, 200},
		{"/cell?column=default/other&row=n1&token=" + token, address, 404},
	} {
		response := get(c.path, c.host)
		if response.StatusCode != c.want {
			t.Errorf("%s at %s: %s; want %d", c.path, c.host, response.Status, c.want)
		}
		for header, want := range securityHeaders {
			// Where there is no such file, there is nothing to keep.
			if got := response.Header.Get(header); got != want && (header != "Cache-Control" || c.path != "/nothing") {
				t.Errorf("%s at %s: %s: %q", c.path, c.host, header, got)
			}
		}
	}
	if len(token) < 26 { // 130 bits, in base32
		t.Errorf("the token is short: %s", token)
	}
	w := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, "/cell?token="+token, nil)
	request.Host = address
	if s.Handler().ServeHTTP(w, request); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestEvents: a stream begins with the whole state, and continues with changes.
func TestEvents(t *testing.T) {
	s, get := newTestServer(t)
	first := matrix(list("a", "", item("n1", 1, 1, "")), list("b", "", item("n1", 1, 1, "")))
	s.Publish(first)
	address, token, _ := strings.Cut(strings.TrimPrefix(s.URL(), "http://"), "/#")
	lines := bufio.NewScanner(get("/events?token="+token, address).Body)
	next := func() (u Update) {
		t.Helper()
		for lines.Scan() {
			data, found := strings.CutPrefix(lines.Text(), "data: ")
			if !found {
				continue
			}
			if err := json.Unmarshal([]byte(data), &u); err != nil {
				t.Fatal(err)
			}
			return u
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return u
	}
	want := append([]Update{{Reset: &Scope{Namespace: "default"}, Status: &Status{Problems: []string{}}}},
		Updates(&Matrix{}, first)...)
	second := matrix(list("b", "", item("n1", 0, 1, diagnose.PodsNotReady)))
	second.Columns["default/a"] = first.Columns["default/a"]
	for i, want := range append(want, Updates(first, second)...) {
		if i == 4 {
			s.Publish(second)
		}
		if diff := cmp.Diff(want, next()); diff != "" {
			t.Errorf("update %d (-want +got):\n%s", i, diff)
		}
	}
}

package cache

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLastReceived: the time is when the last part of an answer for a cache was read. A refusal does not count. Of two
// watches of one resource, the one that is behind counts.
func TestLastReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCaches(t)
		status := http.StatusOK
		answer := func(r *received) io.Reader {
			request, err := http.NewRequestWithContext(r.in(t.Context()), http.MethodGet, "http://example.com", nil)
			if err != nil {
				t.Fatal(err)
			}
			response := &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("two"))}
			RecordResponse(request, response)
			return response.Body
		}
		read := func(body io.Reader) {
			if n, err := body.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatalf("read %d bytes: %v", n, err)
			}
		}
		expect := func(resource string, ago time.Duration, known bool) {
			t.Helper()
			at, there := c.LastReceived()[resource]
			if there != known || known && time.Since(at) != ago {
				t.Errorf("%s: received: %v, %s ago; want %v, %s", resource, there, time.Since(at), known, ago)
			}
		}
		const slices = "endpointslices.discovery.k8s.io"
		nodes, of := answer(&c.Nodes.watched[""].received), answer(&c.EndpointSlices.watched[""].received)
		expect("nodes", 0, false) // There is an answer, but nobody has read any of it.
		read(nodes)
		read(of)
		expect(slices, 0, false) // Nothing has arrived on the other watch.
		time.Sleep(time.Minute)
		expect("nodes", time.Minute, true)
		read(answer(&c.HostnameSlices.watched[""].received))
		expect(slices, time.Minute, true)
		read(nodes)
		read(of)
		time.Sleep(time.Second)
		expect("nodes", time.Second, true)
		expect(slices, time.Second, true)
		expect("pods", 0, false)
		read(nodes)
		time.Sleep(time.Second)
		if _, err := nodes.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read beyond the end: %v", err)
		}
		expect("nodes", time.Second, true) // The end of a watch says nothing about nodes.
		status = http.StatusForbidden
		read(answer(&c.Nodes.watched[""].received))
		expect("nodes", time.Second, true)
	})
}

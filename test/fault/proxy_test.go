package fault

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// fault is a fault that a request meets.
type fault string

const (
	none       fault = ""
	lost       fault = "the answer is lost"
	cut        fault = "the answer is cut short"
	slow       fault = "the answer takes seconds"
	reset      fault = "the connection is reset"
	expired    fault = "401 Unauthorized"
	forbidden  fault = "403 Forbidden"
	conflict   fault = "409 Conflict"
	busy       fault = "429 with Retry-After"
	internal   fault = "500 Internal Server Error"
	overloaded fault = "503 Service Unavailable"
	crashFirst fault = "the controller is killed before the request arrives"
	crashAfter fault = "the controller is killed before the answer arrives"
)

// badAnswers are the faults that a controller must tolerate.
var badAnswers = []fault{lost, cut, slow, reset, expired, forbidden, conflict, busy, internal, overloaded}

// proxy stands between a controller and the API server. It speaks HTTP, so that it sees each request.
type proxy struct {
	kubeconfig string
	reverse    *httputil.ReverseProxy

	mu sync.Mutex
	// decide returns the fault of each request that is not a watch.
	decide func(*http.Request) fault
	crash  func()
	frozen map[string]chan struct{}  // by resource: its watches send nothing until the channel is closed
	expire map[string]bool           // resources whose next watches end with 410 Gone
	conns  map[string]map[*gate]bool // the watches, by resource
}

func newProxy(t testing.TB, c *framework.Cluster) *proxy {
	t.Helper()
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	account, err := clientcmd.BuildConfigFromFlags("", c.MustControllerKubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(account)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{frozen: map[string]chan struct{}{}, expire: map[string]bool{}, conns: map[string]map[*gate]bool{}}
	p.reverse = &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval:  -1,
		ModifyResponse: p.watched,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, _ error) {
			panic(http.ErrAbortHandler) // As the API server does when it dies.
		},
	}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.thaw()
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// set injects the faults that decide returns, and calls crash for those that are crashes; nil for no faults.
func (p *proxy) set(decide func(*http.Request) fault, crash func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide, p.crash = decide, crash
}

func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") }

// isWrite reports whether a request is a write of the controller's work.
func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") &&
		!strings.Contains(r.URL.Path, "selfsubjectaccessreviews")
}

// ServeHTTP forwards a request, and injects its fault.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	decide, crash := p.decide, p.crash
	p.mu.Unlock()
	what := none
	if decide != nil && !isWatch(r) {
		what = decide(r)
	}
	switch what {
	case none:
		p.reverse.ServeHTTP(w, r)
	case reset:
		panic(http.ErrAbortHandler)
	case expired:
		refuse(w, http.StatusUnauthorized, "Unauthorized")
	case forbidden:
		refuse(w, http.StatusForbidden, "Forbidden")
	case conflict:
		refuse(w, http.StatusConflict, "Conflict")
	case busy:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "TooManyRequests")
	case internal:
		refuse(w, http.StatusInternalServerError, "InternalError")
	case overloaded:
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case slow:
		time.Sleep(5 * time.Second)
		p.reverse.ServeHTTP(w, r)
	case crashFirst:
		crash()
		panic(http.ErrAbortHandler)
	case lost, cut, crashAfter:
		answer := httptest.NewRecorder()
		p.reverse.ServeHTTP(answer, r)
		if what == crashAfter {
			crash()
		}
		if what == cut {
			for key, values := range answer.Header() {
				w.Header()[key] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a fault","reason":%q,"code":%d}`,
		reason, code)
}

// watched passes a watch through the gate of its resource.
func (p *proxy) watched(response *http.Response) error {
	if !isWatch(response.Request) {
		return nil
	}
	resource := path.Base(response.Request.URL.Path)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expire[resource] && response.StatusCode == http.StatusOK &&
		!response.Request.URL.Query().Has("sendInitialEvents") {
		p.expire[resource] = false
		_ = response.Body.Close()
		const gone = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",` +
			`"message":"too old resource version","reason":"Expired","code":410}}` + "\n"
		response.Header.Set("Content-Type", "application/json")
		response.Body = io.NopCloser(strings.NewReader(gone))
		return nil
	}
	held := &gate{ReadCloser: response.Body, proxy: p, resource: resource}
	if p.conns[resource] == nil {
		p.conns[resource] = map[*gate]bool{}
	}
	p.conns[resource][held] = true
	response.Body = held
	return nil
}

// gate holds up a watch while its resource is frozen.
type gate struct {
	io.ReadCloser
	proxy    *proxy
	resource string
	broken   atomic.Bool
}

func (g *gate) Read(b []byte) (int, error) {
	n, err := g.ReadCloser.Read(b)
	g.proxy.mu.Lock()
	frozen := g.proxy.frozen[g.resource]
	g.proxy.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	if g.broken.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (g *gate) Close() error {
	g.proxy.mu.Lock()
	delete(g.proxy.conns[g.resource], g)
	g.proxy.mu.Unlock()
	return g.ReadCloser.Close()
}

// freeze makes the watches of resources send nothing until thaw.
func (p *proxy) freeze(resources ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, resource := range resources {
		if p.frozen[resource] == nil {
			p.frozen[resource] = make(chan struct{})
		}
	}
}

// thaw makes all watches send the events that they hold.
func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for resource, frozen := range p.frozen {
		close(frozen)
		delete(p.frozen, resource)
	}
	clear(p.expire)
}

// breakWatches ends the watches of resources without the events that they hold. With expire, the next ones end with 410
// Gone until a relist, so that no watch ever sends these events.
func (p *proxy) breakWatches(expire bool, resources ...string) {
	p.mu.Lock()
	var broken []*gate
	for _, resource := range resources {
		p.expire[resource] = expire
		for conn := range p.conns[resource] {
			conn.broken.Store(true)
			broken = append(broken, conn)
		}
		if frozen := p.frozen[resource]; frozen != nil {
			close(frozen)
			delete(p.frozen, resource)
		}
	}
	p.mu.Unlock()
	for _, conn := range broken {
		_ = conn.Close()
	}
}

package framework

import (
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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy stands between a controller and an API server. It speaks HTTP, so that it sees each request.
type Proxy struct {
	// Kubeconfig leads to the proxy.
	Kubeconfig string
	// OnWrite is called before each write of the controller's work, nil for never. Set it before the controller starts.
	OnWrite func()
	// IsClosed makes the proxy break each connection.
	IsClosed atomic.Bool
	// DropsBookmarks makes watches lack bookmarks, as some proxies do.
	DropsBookmarks atomic.Bool
	Requests       atomic.Int32 // the number of requests so far
	// Break breaks the connections that there are, with their watches.
	Break func()

	mu     sync.Mutex
	frozen map[string]chan struct{} // by resource: its watches send nothing until the channel is closed
}

// NewProxy makes an open proxy for an account of a kubeconfig, until the end of the test.
func NewProxy(t testing.TB, kubeconfig string) *Proxy {
	t.Helper()
	account := must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", kubeconfig))
	target := must[*url.URL](t)(url.Parse(account.Host))
	p := &Proxy{frozen: map[string]chan struct{}{}, Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	reverse := &httputil.ReverseProxy{
		Transport: must[http.RoundTripper](t)(rest.TransportFor(account)),
		Rewrite: func(r *httputil.ProxyRequest) {
			if r.SetURL(target); p.DropsBookmarks.Load() {
				query := r.Out.URL.Query()
				query.Del("allowWatchBookmarks")
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			if u := response.Request.URL; u.Query().Has("watch") {
				response.Body = &gate{ReadCloser: response.Body, proxy: p, resource: path.Base(u.Path)}
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // As the API server does when it dies.
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Requests.Add(1); p.IsClosed.Load() {
			panic(http.ErrAbortHandler)
		}
		isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") &&
			!strings.Contains(r.URL.Path, "/selfsubject")
		if isWrite && p.OnWrite != nil {
			p.OnWrite()
		}
		reverse.ServeHTTP(w, r)
	}))
	p.Break = server.CloseClientConnections
	t.Cleanup(func() {
		p.Thaw()
		p.Break()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, p.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// gate holds up a watch while its resource is frozen.
type gate struct {
	io.ReadCloser
	proxy    *Proxy
	resource string
}

func (g *gate) Read(b []byte) (int, error) {
	n, err := g.ReadCloser.Read(b)
	g.proxy.mu.Lock()
	frozen := g.proxy.frozen[g.resource]
	g.proxy.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	return n, err
}

// Freeze makes the watches of resources send nothing until Thaw.
func (p *Proxy) Freeze(resources ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, resource := range resources {
		p.frozen[resource] = make(chan struct{})
	}
}

// Thaw makes all watches send the events that they hold.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for resource, frozen := range p.frozen {
		close(frozen)
		delete(p.frozen, resource)
	}
}

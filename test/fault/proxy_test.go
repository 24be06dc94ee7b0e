package fault

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
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// proxy stands between a controller and an API server. It speaks HTTP, so that it sees each request.
type proxy struct {
	kubeconfig string
	// onWrite is called before each write of the controller's work, nil for never. Set it before the controller starts.
	onWrite func()

	mu     sync.Mutex
	frozen map[string]chan struct{} // by resource: its watches send nothing until the channel is closed
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
	p := &proxy{frozen: map[string]chan struct{}{}, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	reverse := &httputil.ReverseProxy{
		Transport:     transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
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
		isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") &&
			!strings.Contains(r.URL.Path, "/selfsubject")
		if isWrite && p.onWrite != nil {
			p.onWrite()
		}
		reverse.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.thaw()
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// gate holds up a watch while its resource is frozen.
type gate struct {
	io.ReadCloser
	proxy    *proxy
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

// freeze makes the watches of resources send nothing until thaw.
func (p *proxy) freeze(resources ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, resource := range resources {
		p.frozen[resource] = make(chan struct{})
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
}

package framework

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
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
	Requests atomic.Int32 // the number of requests so far
}

// NewProxy makes an open proxy for an account of a kubeconfig, until the end of the test.
func NewProxy(t testing.TB, kubeconfig string) *Proxy {
	t.Helper()
	account := must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", kubeconfig))
	target := must[*url.URL](t)(url.Parse(account.Host))
	p := &Proxy{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	reverse := &httputil.ReverseProxy{
		Transport:     must[http.RoundTripper](t)(rest.TransportFor(account)),
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
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
	t.Cleanup(func() {
		server.CloseClientConnections()
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

package framework

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Proxy forwards a local address to a cluster's API server, unless it is blocked.
type Proxy struct {
	// Kubeconfig is the cluster's, with the address of the proxy.
	Kubeconfig string

	target   string
	listener net.Listener

	mu       sync.Mutex
	blocked  bool
	attempts int
	conns    map[net.Conn]struct{}
}

// NewProxy makes a proxy for a kubeconfig of this cluster, until the end of the test.
func (c *Cluster) NewProxy(t testing.TB, kubeconfig string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("make a proxy: %v", err)
	}
	p := &Proxy{listener: listener, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() {
		p.Block()
		_ = listener.Close()
	})
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		p.target = strings.TrimPrefix(cluster.Server, "https://")
		cluster.Server = "https://" + listener.Addr().String()
	}
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, p.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	go p.serve()
	return p
}

// Block breaks all connections, and every new one at once.
func (p *Proxy) Block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = true
	for conn := range p.conns {
		reset(conn)
	}
}

// Unblock lets connections through again.
func (p *Proxy) Unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = false
}

// Attempts returns the number of connections that were made so far, including blocked ones.
func (p *Proxy) Attempts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts
}

func (p *Proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // Closed.
		}
		if p.admit(conn) {
			go p.forward(conn)
		} else {
			reset(conn)
		}
	}
}

// admit counts a connection, and remembers it if it is not blocked.
func (p *Proxy) admit(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts++
	if p.blocked {
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Proxy) forward(conn net.Conn) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, conn)
		_ = conn.Close()
	}()
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer upstream.Close()
	go func() {
		_, _ = io.Copy(upstream, conn) // Only the two ends care how a connection ends.
		_ = upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

// reset breaks a connection as a crash does, with a reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

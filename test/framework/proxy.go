package framework

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Proxy is an address of this machine that leads to a cluster's API server, or does not. At first nobody listens there.
type Proxy struct {
	// Kubeconfig is the cluster's, with the address of the proxy.
	Kubeconfig string

	target string
	socket int // bound, so that nobody else gets its port, and at first not listening

	mu       sync.Mutex
	listener net.Listener
	blocked  bool
	attempts int
	conns    map[net.Conn]struct{}
}

// NewProxy makes a proxy for a kubeconfig of this cluster, until the end of the test.
func (c *Cluster) NewProxy(t testing.TB, kubeconfig string) *Proxy {
	t.Helper()
	p := &Proxy{conns: map[net.Conn]struct{}{}}
	if err := p.bind(); err != nil {
		t.Fatalf("make a proxy: %v", err)
	}
	t.Cleanup(p.close)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(p.socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		p.target = strings.TrimPrefix(cluster.Server, "https://")
		cluster.Server = fmt.Sprintf("https://127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
	}
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, p.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Proxy) bind() error {
	var err error
	if p.socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	return syscall.Bind(p.socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
}

// Listen has the proxy answer. Connections lead to the API server, unless it is blocked.
func (p *Proxy) Listen(t testing.TB) {
	t.Helper()
	if err := syscall.Listen(p.socket, syscall.SOMAXCONN); err != nil {
		t.Fatalf("listen: %v", err)
	}
	file := os.NewFile(uintptr(p.socket), "proxy")
	listener, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatalf("listen: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	go p.serve(listener)
}

// Block breaks all connections, and each new one at once.
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

// Attempts is the number of connections that were made so far, blocked ones included.
func (p *Proxy) Attempts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
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
		_, _ = io.Copy(upstream, conn) // How a connection ends is for its two ends to judge.
		_ = upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

// reset breaks a connection as a crash does, without a goodbye.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (p *Proxy) close() {
	p.Block()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
	} else {
		_ = syscall.Close(p.socket)
	}
}

package framework

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Proxy is a way to a cluster's API server that a test opens: until then, it breaks each connection.
type Proxy struct {
	// Kubeconfig is the cluster's, with the address of the proxy.
	Kubeconfig string
	IsOpen     atomic.Bool
	Attempts   atomic.Int32 // the number of connections so far
}

// NewProxy makes a proxy for a kubeconfig of this cluster, until the end of the test.
func (c *Cluster) NewProxy(t testing.TB, kubeconfig string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("make a proxy: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	target := ""
	for _, cluster := range config.Clusters {
		target = strings.TrimPrefix(cluster.Server, "https://")
		cluster.Server = "https://" + listener.Addr().String()
	}
	p := &Proxy{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*config, p.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			if p.Attempts.Add(1); p.IsOpen.Load() {
				go forward(conn, target)
				continue
			}
			_ = conn.(*net.TCPConn).SetLinger(0) // With a reset, as a crash does.
			_ = conn.Close()
		}
	}()
	return p
}

// forward connects a client with an address. Only the two ends care how a connection ends.
func forward(conn net.Conn, target string) {
	defer conn.Close()
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer upstream.Close()
	go func() {
		_, _ = io.Copy(upstream, conn)
		_ = upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

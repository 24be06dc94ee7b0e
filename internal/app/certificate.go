package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// reloadInterval is how often the files of a certificate are read at most.
	reloadInterval = time.Second
	// selfSignedFor is how long a certificate of our own is valid: nobody renews it before the program restarts.
	selfSignedFor = 10 * 365 * 24 * time.Hour
)

// certificate is that of a server. It is read again when its files have changed, as when a Secret is renewed.
type certificate struct {
	certFile, keyFile string // "" if it is self-signed

	mu      sync.Mutex
	read    time.Time
	content []byte // of the files
	pair    *tls.Certificate
	failed  bool
}

// newCertificate reads a certificate, or makes one that is self-signed if there are no files.
func newCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	if certFile != "" {
		return c, c.load()
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	cert, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host: hostname, MaxAge: selfSignedFor})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	c.pair = &pair
	return c, err
}

// get returns the certificate for a handshake. If the files cannot be read, or do not fit together, as between the
// writes of both, it is the one from before.
func (c *certificate) get(ctx context.Context) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certFile == "" || time.Since(c.read) < reloadInterval {
		return c.pair
	}
	err := c.load()
	if err != nil && !c.failed {
		klog.FromContext(ctx).Error(err, "The certificate for /metrics is not renewed")
	}
	c.failed = err != nil
	return c.pair
}

// load reads the files.
func (c *certificate) load() error {
	c.read = time.Now()
	cert, err1 := os.ReadFile(c.certFile)
	key, err2 := os.ReadFile(c.keyFile)
	err := errors.Join(err1, err2)
	content := bytes.Join([][]byte{cert, key}, nil)
	if err == nil && bytes.Equal(content, c.content) {
		return nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return fmt.Errorf("read the certificate for /metrics from -metrics-tls-cert-file=%s and "+
			"-metrics-tls-key-file=%s: %w", c.certFile, c.keyFile, err)
	}
	c.content, c.pair = content, &pair
	return nil
}

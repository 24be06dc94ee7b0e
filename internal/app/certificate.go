package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// selfSignedFor is how long a self-signed certificate is valid: only a restart of the program renews it.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// certificate is that of /metrics over TLS. Its files are read for each handshake, so that a renewed Secret is served
// at once. Scrapers keep their connections, and reading files is cheap compared with the handshake.
type certificate struct {
	certFile, keyFile string // "" if it is self-signed
	last              atomic.Pointer[tls.Certificate]
	complaints        complaints
}

// newCertificate reads a certificate, or makes a self-signed one if there are no files.
func newCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, complaints: newComplaints()}
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
	c.last.Store(&pair)
	return c, err
}

// get returns the certificate for a handshake. If the files cannot be read, or do not match because only one is written
// yet, it returns the last one that it read.
func (c *certificate) get(ctx context.Context) *tls.Certificate {
	if c.certFile != "" {
		if err := c.load(); err != nil && c.complaints.isNews("", err.Error()) {
			klog.FromContext(ctx).Error(err, "The certificate for /metrics is not renewed")
		}
	}
	return c.last.Load()
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read the certificate for /metrics from -metrics-tls-cert-file=%s and "+
			"-metrics-tls-key-file=%s: %w", c.certFile, c.keyFile, err)
	}
	c.last.Store(&pair)
	return nil
}

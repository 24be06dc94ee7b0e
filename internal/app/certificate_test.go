package app

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// TestCertificateIsRenewed: a certificate is reloaded when its files change. While they do not match, the last valid
// one is served.
func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("first", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newCertificate(certFile, keyFile); err == nil {
		t.Error("no error without files")
	}
	write(certFile, cert)
	write(keyFile, key)
	c, err := newCertificate(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	serves := func() string {
		t.Helper()
		return nameOf(t, c.get(t.Context()))
	}
	if got := serves(); got != "first" {
		t.Errorf("serves %s", got)
	}
	if cert, key, err = certutil.GenerateSelfSignedCertKey("second", nil, nil); err != nil {
		t.Fatal(err)
	}
	write(certFile, cert)
	if got := serves(); got != "first" {
		t.Errorf("serves %s before the key exists", got)
	}
	write(keyFile, key)
	if got := serves(); got != "second" {
		t.Errorf("serves %s", got)
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	if got := serves(); got != "second" {
		t.Errorf("serves %s", got)
	}
}

// TestSelfSigned: without files there is a certificate that outlives the program.
func TestSelfSigned(t *testing.T) {
	c, err := newCertificate("", "")
	if err != nil {
		t.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	pair := c.get(t.Context())
	if got := nameOf(t, pair); got != hostname {
		t.Errorf("it is for %s, want %s", got, hostname)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(leaf.NotAfter); left < selfSignedFor-2*time.Hour {
		t.Errorf("it is valid for %s", left)
	}
}

func nameOf(t *testing.T, pair *tls.Certificate) string {
	t.Helper()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(leaf.DNSNames) != 1 {
		t.Fatalf("it is for %v", leaf.DNSNames)
	}
	return leaf.DNSNames[0]
}

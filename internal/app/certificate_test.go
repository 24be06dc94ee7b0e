package app

import (
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
		return c.get(t.Context()).Leaf.DNSNames[0]
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
	leaf := c.get(t.Context()).Leaf
	if got := leaf.DNSNames[0]; got != hostname {
		t.Errorf("it is for %s, want %s", got, hostname)
	}
	if left := time.Until(leaf.NotAfter); left < selfSignedFor-2*time.Hour {
		t.Errorf("it is valid for %s", left)
	}
}

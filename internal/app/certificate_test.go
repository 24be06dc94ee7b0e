package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// TestCertificateIsRenewed: a certificate is read again when its files change. While they do not match, there is none.
func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(host string, files ...string) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data := cert
			if file == keyFile {
				data = key
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := certificateFrom(certFile, keyFile); err == nil {
		t.Error("no error without files")
	}
	write("first", certFile, keyFile)
	get, err := certificateFrom(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		got := ""
		if pair, err := get(nil); err == nil {
			got = pair.Leaf.DNSNames[0]
		}
		if got != want {
			t.Errorf("serves %q, want %q", got, want)
		}
	}
	expect("first")
	write("second", certFile)
	expect("")
	write("third", certFile, keyFile)
	expect("third")
}

// TestSelfSigned: without files there is a certificate that outlives the program.
func TestSelfSigned(t *testing.T) {
	get, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	pair, _ := get(nil)
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := pair.Leaf.DNSNames[0]; got != hostname {
		t.Errorf("it is for %s, want %s", got, hostname)
	}
	if left := time.Until(pair.Leaf.NotAfter); left < selfSignedFor-2*time.Hour {
		t.Errorf("it is valid for %s", left)
	}
}

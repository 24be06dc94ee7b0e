package app

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// selfSignedFor outlives the program: only its restart renews a self-signed certificate.
const selfSignedFor = 10 * 365 * 24 * time.Hour

type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificateFrom returns a function that reads the certificate of /metrics for each handshake, so that a renewed one
// is served at once. Scrapers keep their connections, and to read files is cheap compared with a handshake.
func certificateFrom(certFile, keyFile string) (getCertificate, error) {
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate for /metrics from -metrics-tls-cert-file=%s and "+
				"-metrics-tls-key-file=%s: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}
	_, err := read(nil)
	return read, err
}

// selfSigned makes a certificate.
func selfSigned() (getCertificate, error) {
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
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, err
}

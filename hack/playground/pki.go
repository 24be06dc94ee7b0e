package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs the certificates of one playground.
type authority struct {
	dir  workdir
	key  crypto.Signer
	cert *x509.Certificate
}

// identity is who a certificate is for: a user and its group, or a server and its names.
type identity struct {
	user, group string
	hosts       []string
	ips         []net.IP
}

// newAuthority makes the keys that everything else is signed with, and writes them to pki/.
func newAuthority(dir workdir) (*authority, error) {
	key, err := newKey(dir.path("pki", "ca.key"))
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "playground"}, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	a := &authority{dir: dir, key: key, cert: ca}
	if err := cert.WriteCert(dir.path("pki", "ca.crt"), a.pem(ca)); err != nil {
		return nil, fmt.Errorf("writing the certificate authority: %w", err)
	}
	return a, nil
}

// loadAuthority is the authority that newAuthority made.
func loadAuthority(dir workdir) (*authority, error) {
	key, err := keyutil.PrivateKeyFromFile(dir.path("pki", "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("loading the certificate authority: %w", err)
	}
	certs, err := cert.CertsFromFile(dir.path("pki", "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("loading the certificate authority: %w", err)
	}
	return &authority{dir: dir, key: key.(crypto.Signer), cert: certs[0]}, nil
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", path, err)
	}
	b, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := keyutil.WriteKey(path, b); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return key, nil
}

func (a *authority) pem(c *x509.Certificate) []byte {
	b, _ := cert.EncodeCertificates(c) // fails only where writing to memory fails
	return b
}

// issue writes pki/NAME.key and pki/NAME.crt.
func (a *authority) issue(name string, id identity) error {
	key, err := newKey(a.dir.path("pki", name+".key"))
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.user},
		DNSNames:     id.hosts,
		IPAddresses:  id.ips,
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotBefore.Add(365 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	if id.group != "" {
		template.Subject.Organization = []string{id.group}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	if err := cert.WriteCert(a.dir.path("pki", name+".crt"), a.pem(c)); err != nil {
		return fmt.Errorf("writing the certificate of %s: %w", name, err)
	}
	return nil
}

// issueClient writes pki/NAME.kubeconfig, with which a component is that identity.
func (a *authority) issueClient(name, server string, id identity) error {
	if err := a.issue(name, id); err != nil {
		return err
	}
	return a.writeKubeconfig(a.dir.kubeconfigOf(name), server, clientcmdapi.AuthInfo{
		ClientCertificate: a.dir.path("pki", name+".crt"),
		ClientKey:         a.dir.path("pki", name+".key"),
	})
}

// writeKubeconfig writes a kubeconfig that needs no other file.
func (a *authority) writeKubeconfig(path, server string, user clientcmdapi.AuthInfo) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["playground"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: a.pem(a.cert)}
	c.AuthInfos["playground"] = &user
	c.Contexts["playground"] = &clientcmdapi.Context{Cluster: "playground", AuthInfo: "playground"}
	c.CurrentContext = "playground"
	if err := clientcmdapi.FlattenConfig(c); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// newAdmin writes the API server's list of tokens, with one for an administrator, and the kubeconfig for the outside.
func (a *authority) newAdmin(server string) error {
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return fmt.Errorf("making the administrator's token: %w", err)
	}
	token := hex.EncodeToString(random)
	if err := os.WriteFile(a.dir.path("pki", "tokens.csv"), []byte(token+",admin,admin,system:masters\n"),
		0o600); err != nil {
		return fmt.Errorf("writing the administrator's token: %w", err)
	}
	return a.writeKubeconfig(a.dir.path("kubeconfig"), server, clientcmdapi.AuthInfo{Token: token})
}

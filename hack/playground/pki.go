package main

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// algorithm is that of all keys. RSA keys take seconds to make.
const algorithm = kubeadm.EncryptionAlgorithmECDSAP256

// authority signs the certificates of one playground.
type authority struct {
	dir  workdir
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes the keys that everything else is signed with, and writes them to pki/.
func newAuthority(dir workdir) (*authority, error) {
	ca, key, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{
		Config: cert.Config{CommonName: "playground"}, EncryptionAlgorithm: algorithm,
	})
	if err == nil {
		err = pkiutil.WriteCertAndKey(dir.path("pki"), "ca", ca, key)
	}
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority: %w", err)
	}
	return &authority{dir, ca, key}, nil
}

// loadAuthority is the authority that newAuthority made.
func loadAuthority(dir workdir) (*authority, error) {
	ca, key, err := pkiutil.TryLoadCertAndKeyFromDisk(dir.path("pki"), "ca")
	if err != nil {
		return nil, fmt.Errorf("loading the certificate authority: %w", err)
	}
	return &authority{dir, ca, key}, nil
}

// issue writes pki/NAME.key and pki/NAME.crt, for a user and its group, or a server and its names.
func (a *authority) issue(name string, id cert.Config) error {
	id.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	c, key, err := pkiutil.NewCertAndKey(a.cert, a.key, &pkiutil.CertConfig{Config: id, EncryptionAlgorithm: algorithm})
	if err == nil {
		err = pkiutil.WriteCertAndKey(a.dir.path("pki"), name, c, key)
	}
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	return nil
}

// issueClient writes pki/NAME.kubeconfig, with which a component is that identity.
func (a *authority) issueClient(name, server string, id cert.Config) error {
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
	c := kubeconfig.CreateBasic(server, "playground", "playground", pkiutil.EncodeCertPEM(a.cert))
	c.AuthInfos["playground"] = &user
	err := clientcmdapi.FlattenConfig(c)
	if err == nil {
		err = clientcmd.WriteToFile(*c, path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// newAdmin writes the API server's list of tokens, with one for an administrator, and the kubeconfig for the outside.
func (a *authority) newAdmin(server string) error {
	token := rand.Text()
	if err := os.WriteFile(a.dir.path("pki", "tokens.csv"), []byte(token+",admin,admin,system:masters\n"),
		0o600); err != nil {
		return fmt.Errorf("writing the administrator's token: %w", err)
	}
	return a.writeKubeconfig(a.dir.path("kubeconfig"), server, clientcmdapi.AuthInfo{Token: token})
}

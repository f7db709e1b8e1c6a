package natsbus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a private certificate authority with its files.
type authority struct {
	t           *testing.T
	directory   string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, directory: t.TempDir()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.certificate, a.key = a.sign(template, "ca")
	return a
}

// sign writes a certificate and its key into files of that name.
func (a *authority) sign(template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", raw)
	a.write(name+".key", "EC PRIVATE KEY", encoded)
	return certificate, key
}

func (a *authority) write(name, kind string, data []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.directory, name) }

// server asks for client certificates of the authority.
func (a *authority) server() *tls.Config {
	a.t.Helper()
	a.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "server")
	pair, err := tls.LoadX509KeyPair(a.file("server.crt"), a.file("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// client are the files of a client with a certificate.
func (a *authority) client() TLSFiles {
	a.t.Helper()
	a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "scheduler"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, "client")
	return TLSFiles{CAFile: a.file("ca.crt"), CertFile: a.file("client.crt"), KeyFile: a.file("client.key")}
}

func TestNATSIsVerifiedByAPrivateAuthorityAndShownAClientCertificate(t *testing.T) {
	a := newAuthority(t)
	_, bus := newStandInWith(t, a.server(), Options{TLS: a.client()})

	answered(t, bus)
}

func TestRenewedCertificatesAreUsedByTheNextConnection(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	files := before.client()
	server, bus := newStandInWith(t, before.server(), Options{TLS: files})
	answered(t, bus)

	renewed := after.client()
	for from, to := range map[string]string{renewed.CAFile: files.CAFile, renewed.CertFile: files.CertFile, renewed.KeyFile: files.KeyFile} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotated := after.server()
	server.now(func() { server.tls = rotated })
	server.drop("")

	answered(t, bus)
}

func TestAServerOfAnotherAuthorityOrWithoutTLSIsNotUsed(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	for name, config := range map[string]*tls.Config{"another authority's": other.server(), "in clear": nil} {
		_, bus := newStandInWith(t, config, Options{TLS: a.client()})
		time.Sleep(time.Second)

		if err := asks(t, bus, []byte("question")); err == nil {
			t.Errorf("%s: answered", name)
		}
	}
}

func TestAPasswordComesFromAFileThatIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(" old ")
	server, bus := newStandInWith(t, nil, Options{Username: "scheduler", PasswordFile: file})
	server.now(func() { server.login = `"user":"scheduler","pass":" old "` })
	answered(t, bus)

	write("new")
	server.now(func() { server.login = `"user":"scheduler","pass":"new"` })
	server.drop("")

	answered(t, bus)
}

package streams

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestWithoutAKeyNoOrderIsWrittenWhereSignaturesAreRequired(t *testing.T) {
	s := &Signatures{mode: SignaturesRequire}

	if err := s.Sign(&wire.Envelope{}, "subject"); err == nil {
		t.Error("an order is written that no evictor takes")
	}
	if err := (&Signatures{mode: SignaturesLog}).Sign(&wire.Envelope{}, "subject"); err != nil {
		t.Error(err)
	}
}

func TestAKeyThatIsNotPublishedSignsWhereSignaturesAreOnlyCounted(t *testing.T) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := wire.ParseSigningKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	if err != nil {
		t.Fatal(err)
	}
	s := &Signatures{mode: SignaturesLog}
	s.key.Store(key)
	s.public.Store(&wire.PublicKeys{})

	envelope := &wire.Envelope{}
	if err := s.Sign(envelope, "subject"); err != nil || envelope.KeyID != key.KeyID {
		t.Errorf("key %q, %v", envelope.KeyID, err)
	}
}

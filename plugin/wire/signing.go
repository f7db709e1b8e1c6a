package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// SigningKind is what a key signs. Each kind has keys of its own.
type SigningKind string

// The kinds of signed messages.
const (
	SigningOrder   SigningKind = "order"
	SigningControl SigningKind = "control"
	SigningOutcome SigningKind = "outcome"
)

// SignatureVerdict is what a signature is found to be.
type SignatureVerdict string

// The verdicts of Verify.
const (
	SignatureValid      SignatureVerdict = "valid"
	SignatureMissing    SignatureVerdict = "missing"
	SignatureUnknownKey SignatureVerdict = "unknown-key"
	SignatureInvalid    SignatureVerdict = "invalid"
)

// MaxPublicKeys is how many keys of one kind count: the one in use, and its predecessor or successor during a rotation.
const MaxPublicKeys = 2

// PublicKeys are the public keys that count, by kind and key id.
type PublicKeys map[SigningKind]map[string]ed25519.PublicKey

// ParsePublicKeys reads a ConfigMap's data: under the name of each kind, such as order.pem, one or two keys in PEM.
func ParsePublicKeys(data map[string]string) (PublicKeys, error) {
	keys := PublicKeys{}
	for _, kind := range []SigningKind{SigningOrder, SigningControl, SigningOutcome} {
		name := string(kind) + ".pem"
		parsed, err := parsePublicKeys(data[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		keys[kind] = parsed
	}
	return keys, nil
}

func parsePublicKeys(text string) (map[string]ed25519.PublicKey, error) {
	keys := map[string]ed25519.PublicKey{}
	blocks := 0
	for rest := []byte(text); strings.TrimSpace(string(rest)) != ""; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "PUBLIC KEY" {
			return nil, errors.New("not a public key in PEM")
		}
		if blocks++; blocks > MaxPublicKeys {
			return nil, fmt.Errorf("more than %d keys", MaxPublicKeys)
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("not a public key in PEM: %w", err)
		}
		public, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("not an Ed25519 key: %T", parsed)
		}
		keys[keyID(public)] = public
	}
	return keys, nil
}

// Verify returns what the envelope's signature is, as one of this kind on this subject.
func (k PublicKeys) Verify(envelope *Envelope, kind SigningKind, subject string) SignatureVerdict {
	if envelope.Signature == "" || envelope.KeyID == "" {
		return SignatureMissing
	}
	key, ok := k[kind][envelope.KeyID]
	if !ok {
		return SignatureUnknownKey
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(envelope.Signature)
	// The decoder passes over line breaks.
	if err != nil || strings.ContainsAny(envelope.Signature, "\r\n") || !ed25519.Verify(key, signedBytes(kind, subject, envelope.Data), signature) {
		return SignatureInvalid
	}
	return SignatureValid
}

// signedBytes is what a signature is of: makeway/KIND/v1, a zero byte, the NATS subject, a zero byte and the exact bytes of data, by Ed25519
// (RFC 8032). The kind keeps a signature from counting for a message of another kind, the subject from counting elsewhere. The envelope's
// other attributes are not signed: no part acts on them.
func signedBytes(kind SigningKind, subject string, data []byte) []byte {
	head := "makeway/" + string(kind) + "/v1\x00" + subject + "\x00"
	return append([]byte(head), data...)
}

// keyID is a public key's name: the first 16 hexadecimal digits of the SHA-256 of its 32 bytes.
func keyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

package wire

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// signatureTable is the table that Python's tests read too.
type signatureTable struct {
	Seeds      map[string]string `json:"seeds"`
	PublicKeys map[string]string `json:"publicKeys"`
	Cases      []struct {
		Name      string           `json:"name"`
		Signer    string           `json:"signer"`
		Kind      SigningKind      `json:"kind"`
		Subject   string           `json:"subject"`
		KeyID     string           `json:"keyid"`
		Signature string           `json:"signature"`
		Data      string           `json:"data"`
		Verdict   SignatureVerdict `json:"verdict"`
	} `json:"cases"`
}

func readSignatureTable(t *testing.T) (signatureTable, PublicKeys) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testdata, "signatures", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	table := signatureTable{}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	keys, err := ParsePublicKeys(table.PublicKeys)
	if err != nil {
		t.Fatal(err)
	}
	return table, keys
}

// sign signs as Python does, by a seed of the table.
func sign(t *testing.T, seed string, envelope *Envelope, kind SigningKind, subject string) {
	t.Helper()
	raw, err := hex.DecodeString(seed)
	if err != nil {
		t.Fatal(err)
	}
	private := ed25519.NewKeyFromSeed(raw)
	envelope.KeyID = keyID(private.Public().(ed25519.PublicKey))
	envelope.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(private, signedBytes(kind, subject, envelope.Data)))
}

func TestASignatureCountsForItsKindItsSubjectAndItsBytesAlone(t *testing.T) {
	table, keys := readSignatureTable(t)
	for _, c := range table.Cases {
		envelope := &Envelope{KeyID: c.KeyID, Signature: c.Signature, Data: json.RawMessage(c.Data)}

		if got := keys.Verify(envelope, c.Kind, c.Subject); got != c.Verdict {
			t.Errorf("%s: %s, want %s", c.Name, got, c.Verdict)
		}
	}
}

func TestASignatureIsTheSameInBothLanguages(t *testing.T) {
	table, _ := readSignatureTable(t)
	for _, c := range table.Cases {
		if c.Verdict != SignatureValid {
			continue
		}
		envelope := &Envelope{Data: json.RawMessage(c.Data)}

		sign(t, table.Seeds[c.Signer], envelope, c.Kind, c.Subject)

		if envelope.KeyID != c.KeyID || envelope.Signature != c.Signature {
			t.Errorf("%s: %s %s, want %s %s", c.Name, envelope.KeyID, envelope.Signature, c.KeyID, c.Signature)
		}
	}
}

func TestASignatureHoldsAfterItsEnvelopeWasWrittenAndRead(t *testing.T) {
	table, keys := readSignatureTable(t)
	data, err := wrap(TypeOrder, "ord-1", "makeway/scheduler/a", "7f", Time{}, map[string]string{"message": "a < b & \u2028"})
	if err != nil {
		t.Fatal(err)
	}
	envelope := &Envelope{}
	if err := json.Unmarshal(data, envelope); err != nil {
		t.Fatal(err)
	}
	sign(t, table.Seeds["order/new"], envelope, SigningOrder, "orders")
	written, err := Encode(envelope)
	if err != nil {
		t.Fatal(err)
	}
	read := &Envelope{}
	if err := json.Unmarshal(written, read); err != nil {
		t.Fatal(err)
	}

	if got := keys.Verify(read, SigningOrder, "orders"); got != SignatureValid {
		t.Errorf("%s: %s", got, written)
	}
}

func TestKeysThatCannotBeUsedAreRefused(t *testing.T) {
	table, _ := readSignatureTable(t)
	three := table.PublicKeys["order.pem"] + table.PublicKeys["control.pem"]
	for text, want := range map[string]string{"nonsense": "not a public key", three: "more than 2 keys"} {
		if _, err := ParsePublicKeys(map[string]string{"order.pem": text}); err == nil || !strings.Contains(err.Error(), "order.pem: "+want) {
			t.Errorf("%.20q: error %v, want %q", text, err, want)
		}
	}
}

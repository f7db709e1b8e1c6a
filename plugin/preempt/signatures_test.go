package preempt

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/wire"
)

var kinds = []wire.SigningKind{wire.SigningOrder, wire.SigningQuotaOrder, wire.SigningControl, wire.SigningOutcome}

// keyRing is a private key of each kind, and the ConfigMap of the public ones.
type keyRing struct {
	t       *testing.T
	private map[wire.SigningKind][]byte
	public  map[string]string
}

func newKeyRing(t *testing.T) *keyRing {
	t.Helper()
	k := &keyRing{t: t, private: map[wire.SigningKind][]byte{}, public: map[string]string{}}
	for _, kind := range kinds {
		k.renew(kind)
	}
	return k
}

// renew makes a new key of a kind, and adds its public key to the last one.
func (k *keyRing) renew(kind wire.SigningKind) {
	k.t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		k.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		k.t.Fatal(err)
	}
	shown, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		k.t.Fatal(err)
	}
	k.private[kind] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	k.public[string(kind)+".pem"] += string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: shown}))
}

func (k *keyRing) key(kind wire.SigningKind) *wire.SigningKey {
	k.t.Helper()
	key, err := wire.ParseSigningKey(k.private[kind])
	if err != nil {
		k.t.Fatal(err)
	}
	return key
}

func (k *keyRing) configMap() *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "makeway-system", Name: "makeway-keys"}, Data: k.public}
}

// signed is a message as it would be with the signature of a kind's key.
func (k *keyRing) signed(data []byte, by, kind wire.SigningKind, subject string) []byte {
	k.t.Helper()
	envelope := &wire.Envelope{}
	if err := wire.Decode(data, envelope); err != nil {
		k.t.Fatal(err)
	}
	k.key(by).Sign(envelope, kind, subject)
	out, err := wire.Encode(envelope)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// requiring is a world that requires signatures.
func requiring(t *testing.T, mode string) (*world, *v1.Pod, *keyRing, string) {
	t.Helper()
	keys := newKeyRing(t)
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "order.pem"), keys.private[wire.SigningOrder], 0o600); err != nil {
		t.Fatal(err)
	}
	given := setup{objects: []runtime.Object{keys.configMap()}, args: func(a *MakeWayArgs) {
		a.Signatures, a.SigningKeysDirectory = mode, directory
	}}
	w, p, _ := simple(t, given, nil)
	w.bus.commit = storing{w.bus, w.plugin.engine, func(envelope *wire.Envelope, subject string) {
		keys.key(wire.SigningQuotaOrder).Sign(envelope, wire.SigningQuotaOrder, subject)
	}}.commit
	w.eventually("the keys are read, and it is said how that went", func() bool {
		return strings.Contains(w.plugin.engine.store.Signatures.Describe(), "; signs order by ")
	})
	return w, p, keys, directory
}

func (w *world) committed(p *v1.Pod) *wire.EvictionOrder {
	w.t.Helper()
	w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)
	w.eventually("the order is known to be stored", func() bool { return w.entry("p").Phase == orders.Committed })
	return order
}

// outcomeOf is an order's outcome, not signed.
func outcomeOf(t *testing.T, order *wire.EvictionOrder, result string) []byte {
	t.Helper()
	outcome := &wire.Outcome{
		OrderID: order.OrderID, Kind: "pod", ClusterUID: order.ClusterUID, Epoch: order.Fence.Epoch, Result: result, Evictor: "test",
		StartedAt: order.CreatedAt, FinishedAt: wire.At(time.Now()), PreemptorUID: order.Preemptor.UID, Node: order.Node,
	}
	data, err := wire.Wrap(wire.TypeOutcome, "out-"+outcome.OrderID, "makeway/evictor/test", outcome.PreemptorUID, outcome.FinishedAt, outcome)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAnOutcomeCountsByItsSignatureAlone(t *testing.T) {
	for name, test := range map[string]struct {
		mode string
		by   wire.SigningKind // that signs; empty: none
		ends bool
	}{
		"signed by the evictor":       {streams.SignaturesRequire, wire.SigningOutcome, true},
		"not signed":                  {streams.SignaturesRequire, "", false},
		"signed by the planner":       {streams.SignaturesRequire, wire.SigningQuotaOrder, false},
		"not signed, and only logged": {streams.SignaturesLog, "", true},
		"not signed, and not looked":  {streams.SignaturesOff, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, keys, _ := requiring(t, test.mode)
			order := w.committed(p)
			subject := w.plugin.engine.store.Subjects.Outcome(order.OrderID)
			data := outcomeOf(t, order, wire.ResultFailed)
			if test.by != "" {
				data = keys.signed(data, test.by, wire.SigningOutcome, subject)
			}

			w.plugin.engine.takeOutcome(w.ctx, natsbus.Record{Subject: subject, Data: data})

			entry := w.entry("p")
			ended := entry == nil || entry.Phase != orders.Committed
			if ended != test.ends {
				t.Errorf("ended %t, want %t", ended, test.ends)
			}
		})
	}
}

func TestAControlStateThatIsNotSignedChangesNothing(t *testing.T) {
	w, _, _, _ := requiring(t, streams.SignaturesRequire)

	w.tells(enforcing(5, nil), start)

	if w.revision() != 0 {
		t.Errorf("revision %d is in force", w.revision())
	}
}

func TestAControlStateIsTakenOnceItsKeyIsKnown(t *testing.T) {
	w, _, keys, _ := requiring(t, streams.SignaturesRequire)
	keys.renew(wire.SigningControl)
	subject := w.plugin.engine.store.Subjects.Control
	data, err := wire.Wrap(wire.TypeControl, "control-5", "makeway/planner/test", "", wire.At(start), enforcing(5, nil))
	if err != nil {
		t.Fatal(err)
	}
	w.plugin.engine.control.Take(w.ctx, natsbus.Record{Subject: subject, Stream: start, Data: keys.signed(data, wire.SigningControl, wire.SigningControl, subject)})
	if w.revision() != 0 {
		t.Fatal("a key that is not known counted")
	}

	if _, err := w.client.CoreV1().ConfigMaps("makeway-system").Update(w.ctx, keys.configMap(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.plugin.engine.store.Signatures.Renew(w.ctx, w.plugin.engine.control.Take)

	if w.revision() != 5 {
		t.Errorf("revision %d is in force", w.revision())
	}
}

func TestAForgedOrderNeitherBlocksTheWriterNorIsAdopted(t *testing.T) {
	w, p, _, _ := requiring(t, streams.SignaturesRequire)
	planner := w.bus.commit
	clusterUID, err := w.plugin.engine.clusterUID()
	if err != nil {
		t.Fatal(err)
	}
	forged := &wire.EvictionOrder{
		OrderID: "ord-forged", Kind: "pod", ClusterUID: clusterUID, Fence: wire.Fence{Kind: "kv", Name: "x"}, Writer: "w",
		CreatedAt: wire.At(time.Now()), NotAfter: wire.At(time.Now().Add(time.Minute)), Node: "n1", NodeUID: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", Priority: high, SchedulerName: "s"},
	}
	data, err := wire.WrapOrder(forged, "forger", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.bus.put(w.plugin.engine.store.Subjects.PodOrder("p"), data)
	if w.entry(p.UID) != nil {
		t.Fatal("adopted")
	}

	w.bus.commit = func(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
		commit.After = 1 // a planner passes over what is not signed
		return planner(ctx, commit)
	}
	w.nominated(p, "n1")
	w.show(p, "n1")

	if order := w.order(2); order.OrderID == "ord-forged" {
		t.Error("no order of its own")
	}
	if w.plugin.engine.store.StoredOrderLives(w.ctx, "p") != true {
		t.Error("its own order is not taken for live")
	}
}

func TestANewKeySignsOnceAllOthersKnowIt(t *testing.T) {
	w, _, keys, directory := requiring(t, streams.SignaturesRequire)
	s := w.plugin.engine.store.Signatures
	by := func(key *wire.SigningKey) bool { return strings.Contains(s.Describe(), "signs order by "+key.KeyID) }
	old := keys.key(wire.SigningOrder)
	keys.renew(wire.SigningOrder)
	if err := os.WriteFile(filepath.Join(directory, "order.pem"), keys.private[wire.SigningOrder], 0o600); err != nil {
		t.Fatal(err)
	}

	s.Read(w.ctx)
	if !by(old) || !strings.Contains(s.Describe(), "for long enough") {
		t.Fatalf("a key signs that no other knows: %s", s.Describe())
	}
	if _, err := w.client.CoreV1().ConfigMaps("makeway-system").Update(w.ctx, keys.configMap(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range streams.KeysKnown {
		if !by(old) {
			t.Fatal("too early")
		}
		s.Read(w.ctx)
	}
	s.Read(w.ctx)

	if !by(keys.key(wire.SigningOrder)) {
		t.Errorf("the new key does not sign: %s", s.Describe())
	}
}

func TestTheLastGoodKeysCountWhileNoneCanBeRead(t *testing.T) {
	w, _, keys, directory := requiring(t, streams.SignaturesRequire)
	s := w.plugin.engine.store.Signatures
	known := &wire.Envelope{}
	keys.key(wire.SigningOutcome).Sign(known, wire.SigningOutcome, "subject")
	if err := os.WriteFile(filepath.Join(directory, "order.pem"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.client.CoreV1().ConfigMaps("makeway-system").Delete(w.ctx, "makeway-keys", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	s.Read(w.ctx)

	if err := s.Verify(known, wire.SigningOutcome, "subject"); err != nil || s.Sign(&wire.Envelope{}, "subject") != nil {
		t.Errorf("keys were lost: %v", err)
	}
	for _, want := range []string{"order.pem: not an unencrypted private key", "ConfigMap makeway-system/makeway-keys"} {
		if !strings.Contains(s.Describe(), want) {
			t.Errorf("%q is not in %q", want, s.Describe())
		}
	}
}

// TestAReplacedKeySignsNothing: the ConfigMap has another public key, and the kubelet has not brought the Secret yet.
func TestAReplacedKeySignsNothing(t *testing.T) {
	w, p, keys, directory := requiring(t, streams.SignaturesRequire)
	s := w.plugin.engine.store.Signatures
	keys.public[string(wire.SigningOrder)+".pem"] = ""
	keys.renew(wire.SigningOrder)
	if _, err := w.client.CoreV1().ConfigMaps("makeway-system").Update(w.ctx, keys.configMap(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Read(w.ctx)

	if err := s.Sign(&wire.Envelope{}, "subject"); err == nil || !strings.Contains(err.Error(), "is not published in ConfigMap makeway-system/makeway-keys") {
		t.Errorf("signed by a key that counts for nothing: %v", err)
	}
	if trouble := w.plugin.engine.trouble(); !strings.Contains(trouble, "is not published") {
		t.Errorf("trouble: %q", trouble)
	}
	w.committed(p) // the planner signs the orders for pods
	if err := os.WriteFile(filepath.Join(directory, "order.pem"), keys.private[wire.SigningOrder], 0o600); err != nil {
		t.Fatal(err)
	}
	for range streams.KeysReplaced {
		s.Read(w.ctx)
	}

	if why := s.Unfit(); why != "" {
		t.Error(why)
	}
}

package plugin

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
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

var kinds = []wire.SigningKind{wire.SigningOrder, wire.SigningControl, wire.SigningOutcome}

// keyRing is a private key of each kind, and the ConfigMap of the public ones.
type keyRing struct {
	t       *testing.T
	private map[wire.SigningKind]ed25519.PrivateKey
	public  map[string]string
}

func newKeyRing(t *testing.T) *keyRing {
	t.Helper()
	k := &keyRing{t: t, private: map[wire.SigningKind]ed25519.PrivateKey{}, public: map[string]string{}}
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
	shown, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		k.t.Fatal(err)
	}
	k.private[kind] = private
	k.public[string(kind)+".pem"] += string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: shown}))
}

// sign signs an envelope as the Python side does.
func (k *keyRing) sign(envelope *wire.Envelope, by, kind wire.SigningKind, subject string) {
	private := k.private[by]
	sum := sha256.Sum256(private.Public().(ed25519.PublicKey))
	envelope.KeyID = hex.EncodeToString(sum[:8])
	text := "makeway/" + string(kind) + "/v1\x00" + subject + "\x00" + string(envelope.Data)
	envelope.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
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
	k.sign(envelope, by, kind, subject)
	out, err := wire.Encode(envelope)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// requiring is a world that requires signatures.
func requiring(t *testing.T, mode string) (*world, *v1.Pod, *keyRing) {
	t.Helper()
	keys := newKeyRing(t)
	given := setup{objects: []runtime.Object{keys.configMap()}, args: func(a *MakeWayArgs) { a.Signatures = mode }}
	w, p, _ := simple(t, given, nil)
	w.bus.commit = storing{bus: w.bus, engine: w.plugin.engine, sign: func(data []byte, subject string) []byte {
		return keys.signed(data, wire.SigningOrder, wire.SigningOrder, subject)
	}}.commit
	w.eventually("the keys are read", func() bool { return !w.plugin.engine.store.Signatures.Incomplete() })
	return w, p, keys
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
	data, err := wrap(wire.TypeOutcome, "out-"+outcome.OrderID, "makeway/evictor/test", outcome.PreemptorUID, outcome.FinishedAt, outcome)
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
		"signed by the planner":       {streams.SignaturesRequire, wire.SigningOrder, false},
		"not signed, and only logged": {streams.SignaturesLog, "", true},
		"not signed, and not looked":  {streams.SignaturesOff, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, keys := requiring(t, test.mode)
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
	w, _, _ := requiring(t, streams.SignaturesRequire)

	w.tells(enforcing(5, nil), start)

	if w.revision() != 0 {
		t.Errorf("revision %d is in force", w.revision())
	}
}

func TestAControlStateIsTakenOnceItsKeyIsKnown(t *testing.T) {
	w, _, keys := requiring(t, streams.SignaturesRequire)
	keys.renew(wire.SigningControl)
	subject := w.plugin.engine.store.Subjects.Control()
	data, err := wrap(wire.TypeControl, "control-5", "makeway/planner/test", "", wire.At(start), enforcing(5, nil))
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
	w, p, _ := requiring(t, streams.SignaturesRequire)
	planner := w.bus.commit
	clusterUID, err := w.plugin.engine.control.ClusterUID()
	if err != nil {
		t.Fatal(err)
	}
	forged := &wire.EvictionOrder{
		OrderID: "ord-forged", Kind: "pod", ClusterUID: clusterUID, Fence: wire.Fence{Kind: "kv", Name: "x"}, Writer: "w",
		CreatedAt: wire.At(time.Now()), NotAfter: wire.At(time.Now().Add(time.Minute)), Node: "n1", NodeUID: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", Priority: high, SchedulerName: "s"},
	}
	data, err := wrapOrder(forged, "forger")
	if err != nil {
		t.Fatal(err)
	}
	w.bus.put(w.plugin.engine.store.Subjects.Order(wire.KindPod, "p"), data)
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

func TestTheLastGoodKeysCountWhileNoneCanBeRead(t *testing.T) {
	w, _, keys := requiring(t, streams.SignaturesRequire)
	s := w.plugin.engine.store.Signatures
	known := &wire.Envelope{}
	keys.sign(known, wire.SigningOutcome, wire.SigningOutcome, "subject")
	if err := w.client.CoreV1().ConfigMaps("makeway-system").Delete(w.ctx, "makeway-keys", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	s.Read(w.ctx)

	if err := s.Verify(known, wire.SigningOutcome, "subject"); err != nil {
		t.Errorf("keys were lost: %v", err)
	}
	if want := "ConfigMap makeway-system/makeway-keys"; !strings.Contains(s.Describe(), want) {
		t.Errorf("%q is not in %q", want, s.Describe())
	}
}

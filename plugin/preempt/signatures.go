package preempt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// What becomes of messages whose signature does not hold.
const (
	signaturesOff     = "off"
	signaturesLog     = "log"
	signaturesRequire = "require"
)

const (
	// keysPoll is between two reads of the keys.
	keysPoll = 5 * time.Second
	// keysKnown is how many reads in a row must show a public key before its private key signs in place of another: by
	// then all parts have read it.
	keysKnown = 3
	// keysReplaced is the same where the public key of the other one is gone: nothing is signed meanwhile.
	keysReplaced = 2
	// keysWait is how long the streams are not read at the start for want of keys.
	keysWait = 10 * time.Second
	// keysRetry is between two reads while there are none.
	keysRetry = 250 * time.Millisecond
	// keysLook bounds one read of the ConfigMap.
	keysLook = 5 * time.Second
)

// signatures are what this scheduler signs orders with, and whose signatures count. What was good last counts until
// something good takes its place. The scheduling cycle reads no file and asks nothing of the API server: a goroutine
// keeps the keys. The Python side of the same rules is `makeway.bus.signatures` and `makeway.runtime.key_ring`.
type signatures struct {
	mode      string
	directory string
	configMap ConfigMapReference
	client    kubernetes.Interface

	key     atomic.Pointer[wire.SigningKey]
	public  atomic.Pointer[wire.PublicKeys] // nil: not read yet
	trouble atomic.Pointer[string]          // what is wrong with the keys
	failed  atomic.Int64
	refused atomic.Pointer[natsbus.Record] // the last control state, where no key verified it

	// Of the goroutine that keeps the keys.
	file  []byte
	known []wire.PublicKeys
}

func newSignatures(args *MakeWayArgs, client kubernetes.Interface) *signatures {
	return &signatures{mode: args.Signatures, directory: args.SigningKeysDirectory, configMap: args.KeysConfigMap, client: client}
}

// sign fills in the signature of an order. Without a key that counts it is an error where signatures are required: evictors
// would put the order aside, its preemptor would wait for nothing, and the order would look forged.
func (s *signatures) sign(envelope *wire.Envelope, subject string) error {
	if why := s.unfit(); why != "" {
		return errors.New(why)
	}
	if key := s.key.Load(); key != nil {
		key.Sign(envelope, wire.SigningOrder, subject)
	}
	return nil
}

// unfit is why no order may be signed; empty where one may, or need not.
func (s *signatures) unfit() string {
	if s.mode != signaturesRequire {
		return ""
	}
	key := s.key.Load()
	if key == nil {
		return "there is no key to sign orders with: " + s.describe()
	}
	if public := s.public.Load(); public != nil && !s.shows(*public, key) {
		return fmt.Sprintf("the key %s, which signs orders, is not published in %s", key.KeyID, s.where())
	}
	return ""
}

func (s *signatures) shows(public wire.PublicKeys, key *wire.SigningKey) bool {
	_, ok := public[wire.SigningOrder][key.KeyID]
	return ok
}

// verify is an error where a message counts for nothing for its signature.
func (s *signatures) verify(envelope *wire.Envelope, kind wire.SigningKind, subject string) error {
	if s.mode == signaturesOff || s.mode == "" {
		return nil
	}
	verdict := wire.SignatureUnknownKey
	if public := s.public.Load(); public != nil {
		verdict = public.Verify(envelope, kind, subject)
	}
	if verdict == wire.SignatureValid {
		return nil
	}
	failure := &signatureError{reason: signatureReason(verdict), detail: fmt.Sprintf("%s %.100q by key %.100q", kind, envelope.ID, envelope.KeyID)}
	signatureFailures.WithLabelValues(string(kind), failure.reason).Inc()
	s.failed.Add(1)
	if s.mode == signaturesRequire {
		return failure
	}
	klog.Background().Info("signature_failed", "kind", string(kind), "reason", failure.reason, "subject", subject)
	return nil
}

// signatureError is a message that counts for nothing for its signature.
type signatureError struct{ reason, detail string }

func (s *signatureError) Error() string { return s.reason + ": " + s.detail }

// unverified reports whether an error is for a signature.
func unverified(err error) bool {
	var failure *signatureError
	return errors.As(err, &failure)
}

func signatureReason(verdict wire.SignatureVerdict) string {
	switch verdict {
	case wire.SignatureMissing:
		return "unsigned"
	case wire.SignatureUnknownKey:
		return "unknown-key"
	}
	return "invalid-signature"
}

// unwrapOrder reads an order from a subject.
func (e *engine) unwrapOrder(data []byte, subject string) (*wire.EvictionOrder, error) {
	order := &wire.EvictionOrder{}
	envelope, err := wire.Unwrap(data, wire.TypeOrder, order)
	if err != nil {
		return nil, e.signatures.unread(err)
	}
	kind := wire.SigningOrder
	if order.Kind == wire.KindQuota {
		kind = wire.SigningQuotaOrder
	}
	return order, e.signatures.verify(envelope, kind, subject)
}

// unwrapOutcome reads an outcome from a subject.
func (e *engine) unwrapOutcome(data []byte, subject string) (*wire.Outcome, error) {
	outcome := &wire.Outcome{}
	envelope, err := wire.Unwrap(data, wire.TypeOutcome, outcome)
	if err != nil {
		return nil, e.signatures.unread(err)
	}
	return outcome, e.signatures.verify(envelope, wire.SigningOutcome, subject)
}

// unread is the error of bytes that cannot be read. A message of a newer version stands, whoever wrote it; where
// signatures are required, other bytes count for no more than a message without one.
func (s *signatures) unread(err error) error {
	var malformed *wire.MalformedError
	if s.mode != signaturesRequire || !errors.As(err, &malformed) || malformed.Reason == wire.ReasonUnknownVersion {
		return err
	}
	return &signatureError{reason: malformed.Reason, detail: malformed.Detail}
}

// keepKeys reads the keys again and again until the context ends.
func (e *engine) keepKeys(ctx context.Context) {
	for ctx.Err() == nil {
		goroutines.Sleep(ctx, keysPoll)
		e.readKeys(ctx)
	}
}

// awaitKeys reads the keys, and again for a while where signatures are required and there are none: what is read from the
// streams before counts for nothing.
func (e *engine) awaitKeys(ctx context.Context) {
	end := e.clock.Now().Add(keysWait)
	for e.readKeys(ctx); ctx.Err() == nil && e.signatures.incomplete() && e.clock.Now().Before(end); e.readKeys(ctx) {
		goroutines.Sleep(ctx, keysRetry)
	}
}

// readKeys takes keys that have changed, and a control state that could not be verified before.
func (e *engine) readKeys(ctx context.Context) {
	e.signatures.read(ctx)
	if waiting := e.signatures.refused.Swap(nil); waiting != nil {
		e.takeControl(ctx, *waiting)
	}
}

// incomplete reports whether signatures are required and a key is missing.
func (s *signatures) incomplete() bool {
	return s.mode == signaturesRequire && (s.key.Load() == nil || s.public.Load() == nil)
}

// read takes the keys that have changed.
func (s *signatures) read(ctx context.Context) {
	var wrong []error
	if s.mode == signaturesLog || s.mode == signaturesRequire {
		wrong = append(wrong, s.readPublic(ctx))
	}
	if s.directory != "" {
		wrong = append(wrong, s.readPrivate(ctx))
	}
	if key, public := s.key.Load(), s.public.Load(); key != nil && public != nil {
		unknown := 0.0
		if !s.shows(*public, key) {
			wrong, unknown = append(wrong, fmt.Errorf("%s does not hold key %s, which this scheduler signs with", s.where(), key.KeyID)), 1
		}
		signingKeyUnknown.WithLabelValues(string(wire.SigningOrder)).Set(unknown)
	}
	text := ""
	if err := errors.Join(wrong...); err != nil {
		text = err.Error()
	}
	if before := s.trouble.Swap(&text); text != "" && (before == nil || *before != text) {
		klog.FromContext(ctx).Info("keys_unreadable", "reason", text)
	}
}

func (s *signatures) where() string {
	return "ConfigMap " + s.configMap.Namespace + "/" + s.configMap.Name
}

func (s *signatures) readPublic(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, keysLook)
	defer cancel()
	found, err := s.client.CoreV1().ConfigMaps(s.configMap.Namespace).Get(call, s.configMap.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", s.where(), err)
	}
	keys, err := wire.ParsePublicKeys(found.Data)
	if err != nil {
		return fmt.Errorf("%s: %w", s.where(), err)
	}
	s.public.Store(&keys)
	if s.known = append(s.known, keys); len(s.known) > keysKnown {
		s.known = s.known[1:]
	}
	return nil
}

func (s *signatures) readPrivate(ctx context.Context) error {
	file := filepath.Join(s.directory, string(wire.SigningOrder)+".pem")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if bytes.Equal(content, s.file) {
		return nil
	}
	key, err := wire.ParseSigningKey(content)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	before := s.key.Load()
	if before != nil && s.isEarly(before.KeyID, key.KeyID) {
		return fmt.Errorf("%s: key %s is not in %s for long enough, %s signs", file, key.KeyID, s.where(), before.KeyID)
	}
	s.key.Store(key)
	s.file = content
	signingKeyInfo.Reset()
	signingKeyInfo.WithLabelValues(string(wire.SigningOrder), key.KeyID).Set(1)
	klog.FromContext(ctx).Info("signing_key_taken", "kind", string(wire.SigningOrder), "key_id", key.KeyID)
	return nil
}

// isEarly reports whether some part may not know a new key yet, while all know the one before it.
func (s *signatures) isEarly(before, key string) bool {
	if len(s.known) == 0 {
		return false
	}
	polls := keysKnown
	if _, counts := s.known[len(s.known)-1][wire.SigningOrder][before]; !counts {
		polls = keysReplaced
	}
	if len(s.known) < polls {
		return true
	}
	return slices.ContainsFunc(s.known[len(s.known)-polls:], func(keys wire.PublicKeys) bool {
		_, shown := keys[wire.SigningOrder][key]
		return !shown
	})
}

// describe says how it is for a person: the mode, what it signs with, what failed, what is wrong.
func (s *signatures) describe() string {
	key := s.key.Load()
	if s.mode == "" || (s.mode == signaturesOff && key == nil) {
		return signaturesOff
	}
	text := s.mode + "; signs nothing"
	if key != nil {
		text = fmt.Sprintf("%s; signs %s by %s", s.mode, wire.SigningOrder, key.KeyID)
	}
	if s.mode != signaturesOff {
		text += fmt.Sprintf("; messages failed: %d", s.failed.Load())
	}
	if trouble := s.trouble.Load(); trouble != nil && *trouble != "" {
		text += "; " + *trouble
	}
	return text
}

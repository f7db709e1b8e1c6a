package streams

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// What becomes of messages whose signature does not hold.
const (
	SignaturesOff     = "off"
	SignaturesLog     = "log"
	SignaturesRequire = "require"
)

const (
	// KeysPoll is between two reads of the keys.
	KeysPoll = 5 * time.Second
	// keysWait is how long the streams are not read at the start for want of keys.
	keysWait = 10 * time.Second
	// keysRetry is between two reads while there are none.
	keysRetry = 250 * time.Millisecond
	// keysLook bounds one read of the ConfigMap.
	keysLook = 5 * time.Second
)

// Signatures are whose signatures count. What was good last counts until something good takes its place. The scheduling cycle asks nothing
// of the API server: a goroutine keeps the keys. The Python side of the same rules is `makeway.bus.signing.signatures` and `makeway.runtime.key_ring`.
type Signatures struct {
	mode      string
	configMap types.NamespacedName
	client    kubernetes.Interface

	public  atomic.Pointer[wire.PublicKeys] // nil: not read yet
	trouble atomic.Pointer[string]          // what is wrong with the keys
	failed  atomic.Int64
	refused atomic.Pointer[natsbus.Record] // the last control state, where no key verified it, or it is of a time to come
}

// NewSignatures makes what verifies by a mode, with the public keys of a ConfigMap.
func NewSignatures(mode string, public types.NamespacedName, client kubernetes.Interface) *Signatures {
	return &Signatures{mode: mode, configMap: public, client: client}
}

// Verify is an error where a message counts for nothing for its signature.
func (s *Signatures) Verify(envelope *wire.Envelope, kind wire.SigningKind, subject string) error {
	if s.mode == SignaturesOff || s.mode == "" {
		return nil
	}
	verdict := wire.SignatureUnknownKey
	if public := s.public.Load(); public != nil {
		verdict = public.Verify(envelope, kind, subject)
	}
	if verdict == wire.SignatureValid {
		return nil
	}
	failure := &SignatureError{Reason: signatureReason(verdict), detail: fmt.Sprintf("%s %.100q by key %.100q", kind, envelope.ID, envelope.KeyID)}
	signatureFailures.WithLabelValues(string(kind), failure.Reason).Inc()
	s.failed.Add(1)
	if s.mode == SignaturesRequire {
		return failure
	}
	klog.Background().Info("signature_failed", "kind", string(kind), "reason", failure.Reason, "subject", subject)
	return nil
}

// SignatureError is a message that counts for nothing for its signature.
type SignatureError struct{ Reason, detail string }

func (s *SignatureError) Error() string { return s.Reason + ": " + s.detail }

// Label is the reason, for a metric.
func (s *SignatureError) Label() string { return s.Reason }

// unverified reports whether an error is for a signature.
func unverified(err error) bool {
	var failure *SignatureError
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

// UnwrapOrder reads an order from a subject.
func (s *Signatures) UnwrapOrder(data []byte, subject string) (*wire.EvictionOrder, error) {
	return unwrap[wire.EvictionOrder](s, data, wire.TypeOrder, wire.SigningOrder, subject)
}

// UnwrapOutcome reads an outcome from a subject.
func (s *Signatures) UnwrapOutcome(data []byte, subject string) (*wire.Outcome, error) {
	return unwrap[wire.Outcome](s, data, wire.TypeOutcome, wire.SigningOutcome, subject)
}

func unwrap[M any](s *Signatures, data []byte, eventType string, kind wire.SigningKind, subject string) (*M, error) {
	message := new(M)
	envelope, err := wire.Unwrap(data, eventType, message)
	if err != nil {
		return nil, s.unread(err)
	}
	return message, s.Verify(envelope, kind, subject)
}

// unread is the error of bytes that cannot be read. A message of a newer version stands, whoever wrote it; where
// signatures are required, other bytes count for no more than a message without one.
func (s *Signatures) unread(err error) error {
	var malformed *wire.MalformedError
	if s.mode != SignaturesRequire || !errors.As(err, &malformed) || malformed.Reason == wire.ReasonUnknownVersion {
		return err
	}
	return &SignatureError{Reason: malformed.Reason, detail: malformed.Detail}
}

// Incomplete reports whether signatures are required and the keys are missing.
func (s *Signatures) Incomplete() bool {
	return s.mode == SignaturesRequire && s.public.Load() == nil
}

// Read takes the keys that have changed.
func (s *Signatures) Read(ctx context.Context) {
	if s.mode != SignaturesLog && s.mode != SignaturesRequire {
		return
	}
	text := ""
	if err := s.readPublic(ctx); err != nil {
		text = err.Error()
	}
	if before := s.trouble.Swap(&text); text != "" && (before == nil || *before != text) {
		klog.FromContext(ctx).Info("keys_unreadable", "reason", text)
	}
}

// SetAside keeps a control state that was refused for its signature, or for its time by this clock, until the keys are read again.
func (s *Signatures) SetAside(r natsbus.Record, err error) {
	var misplaced *wire.MisplacedError
	if unverified(err) || errors.As(err, &misplaced) && misplaced.Reason == wire.ReasonFutureRevision {
		s.refused.Store(&r)
	}
}

// Renew takes the keys that have changed, and has a control state taken again that was set aside.
func (s *Signatures) Renew(ctx context.Context, take func(context.Context, natsbus.Record)) {
	s.Read(ctx)
	if waiting := s.refused.Swap(nil); waiting != nil {
		take(ctx, *waiting)
	}
}

// Await does so, and again for a while where signatures are required and there are no keys: what is read from the streams before counts
// for nothing.
func (s *Signatures) Await(ctx context.Context, clock clock.PassiveClock, take func(context.Context, natsbus.Record)) {
	end := clock.Now().Add(keysWait)
	for s.Renew(ctx, take); ctx.Err() == nil && s.Incomplete() && clock.Now().Before(end); s.Renew(ctx, take) {
		goroutines.Sleep(ctx, keysRetry)
	}
}

// Keep renews them again and again, until the context ends.
func (s *Signatures) Keep(ctx context.Context, take func(context.Context, natsbus.Record)) {
	for ctx.Err() == nil {
		goroutines.Sleep(ctx, KeysPoll)
		s.Renew(ctx, take)
	}
}

func (s *Signatures) where() string {
	return "ConfigMap " + s.configMap.Namespace + "/" + s.configMap.Name
}

func (s *Signatures) readPublic(ctx context.Context) error {
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
	return nil
}

// Describe says how it is for a person: the mode, what failed, what is wrong.
func (s *Signatures) Describe() string {
	if s.mode == "" || s.mode == SignaturesOff {
		return SignaturesOff
	}
	text := fmt.Sprintf("%s; messages failed: %d", s.mode, s.failed.Load())
	if trouble := s.trouble.Load(); trouble != nil && *trouble != "" {
		text += "; " + *trouble
	}
	return text
}

var signatureFailures = telemetry.CounterVec("makeway_scheduler_signature_failures_total",
	"Messages whose signature does not hold, by kind (order, control, outcome) and reason: unsigned, unknown-key, invalid-signature. They count for nothing where signatures are required.", "kind", "reason")

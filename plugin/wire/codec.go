// Package wire holds the messages of the bus as Go structs. The structs are generated with what is checked of them from the JSON
// Schemas of the Python structs in bus/src/makeway/bus, which are the source of the contract; the golden files in
// bus/testdata hold both sides to it, byte for byte. It imports nothing of Kubernetes but its JSON decoder, so that it
// can be fuzzed.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// Bounds of what is decoded. A NATS server refuses more than 1 MiB by default; a v1.Pod with all
// its managed fields nests about 20 deep. An object of the contract has more than 16 bytes, so a message that has
// more than MaxNested objects and lists is none; a million empty ones would take a hundred times its memory.
const (
	MaxBytes  = 1 << 20
	MaxDepth  = 100
	MaxNested = MaxBytes / 16
)

// Reasons for which a message is malformed. The Python side uses the same ones.
const (
	ReasonTooLarge       = "too-large"
	ReasonTooDeep        = "too-deep"
	ReasonNotJSON        = "not-json"
	ReasonInvalid        = "invalid"
	ReasonUnknownVersion = "unknown-version"
	ReasonUnknownType    = "unknown-type"
)

// Reasons for which a message is misplaced.
const (
	ReasonWrongSubject   = "wrong-subject"
	ReasonOtherCluster   = "other-cluster"
	ReasonNotAfter       = "not-after-too-far"
	ReasonOldRevision    = "old-revision"
	ReasonUnusableQueues = "unusable-queues"
	ReasonFutureRevision = "future-revision"
)

// MalformedError is a message that was not understood. Reason is one of the constants above.
type MalformedError struct {
	Reason string
	Detail string
}

// Error implements error.
func (e *MalformedError) Error() string { return "malformed message: " + e.Reason + ": " + e.Detail }

// Label is the reason, for a metric.
func (e *MalformedError) Label() string { return e.Reason }

// MisplacedError is a message that can be read, and that no writer of this cluster would have put where it is, or not now.
type MisplacedError struct{ Reason, Detail string }

// Error implements error.
func (e *MisplacedError) Error() string { return e.Reason + ": " + e.Detail }

// Label is the reason, for a metric.
func (e *MisplacedError) Label() string { return e.Reason }

func malformed(reason, format string, args ...any) error {
	return &MalformedError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Encode writes a message as the Python side writes it: compact, the keys of maps in order, and nothing escaped that JSON does not ask for,
// but for the two Unicode line separators.
func Encode(message any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		return nil, fmt.Errorf("encode %T: %w", message, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Decode reads one message within the bounds. Fields that it does not know are ignored, also those whose name
// differs in case alone; a field that is there twice is refused, and so is what a check of the contract finds. into is
// a pointer to an empty struct of this package. Where the Python side differs: docs/consumers.md.
func Decode(data []byte, into any) error {
	hasNull, err := checkBounds(data)
	if err != nil {
		return err
	}
	if !json.Valid(data) || !utf8.Valid(data) {
		return malformed(ReasonNotJSON, "%d bytes that are not one JSON value in UTF-8", len(data))
	}
	// The decoder reads null as if nothing were there, and a missing list of protected namespaces protects none. No writer of makeway writes
	// one, but for the pod in a plan request.
	if _, mayHave := into.(*PlanRequest); hasNull && !mayHave {
		return malformed(ReasonInvalid, "there is a null in it")
	}
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(strict, err)...); err != nil {
		return malformed(ReasonInvalid, "%v", err)
	}
	if problem := none.problem(reflect.ValueOf(into).Elem()); problem != "" {
		return malformed(ReasonInvalid, "$%s", problem)
	}
	return nil
}

// DecodeVersioned reads a question or an answer and refuses another major version.
func DecodeVersioned[M any](data []byte) (*M, error) {
	if _, err := checkBounds(data); err != nil {
		return nil, err
	}
	if err := checkAPIVersion(data); err != nil {
		return nil, err
	}
	message := new(M)
	if err := Decode(data, message); err != nil {
		return nil, err
	}
	return message, nil
}

// checkAPIVersion looks at apiVersion alone, since another version's other fields mean nothing here.
func checkAPIVersion(data []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &head); err == nil && head.APIVersion != "" && head.APIVersion != APIVersion {
		return malformed(ReasonUnknownVersion, "apiVersion %q, this side speaks %s", head.APIVersion, APIVersion)
	}
	return nil
}

// SpecVersion is the CloudEvents version of every envelope.
const SpecVersion = "1.0"

// Source names a writer in an envelope, such as makeway/scheduler/node-1_4711_ab12.
func Source(component, identity string) string { return "makeway/" + component + "/" + identity }

// Unwrap reads an envelope of eventType and the message in it. Another major version of the type, of
// CloudEvents too, is refused with ReasonUnknownVersion, any other type with ReasonUnknownType.
func Unwrap(data []byte, eventType string, into any) (*Envelope, error) {
	envelope := &Envelope{}
	if err := Decode(data, envelope); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(envelope.SpecVersion, "1.") {
		return nil, malformed(ReasonUnknownVersion, "CloudEvents %q, this side speaks %s", envelope.SpecVersion, SpecVersion)
	}
	if envelope.Type != eventType {
		if stem(envelope.Type) == stem(eventType) {
			return nil, malformed(ReasonUnknownVersion, "%q, this side speaks %s", envelope.Type, eventType)
		}
		return nil, malformed(ReasonUnknownType, "%q where %s is expected", envelope.Type, eventType)
	}
	if envelope.DataContentType != "application/json" {
		return nil, malformed(ReasonInvalid, "datacontenttype %q, want application/json", envelope.DataContentType)
	}
	if err := Decode(envelope.Data, into); err != nil {
		return nil, err
	}
	return envelope, nil
}

// stem is an event type without its version: dev.makeway.order of dev.makeway.order.v1.
func stem(eventType string) string { return eventType[:max(strings.LastIndex(eventType, ".v"), 0)] }

// checkBounds looks at size, depth and the number of objects and lists without decoding, in one pass over the bytes. hasNull: there is a
// null in it, where it is valid JSON: an n outside of texts begins nothing else.
func checkBounds(data []byte) (hasNull bool, err error) {
	if len(data) > MaxBytes {
		return false, malformed(ReasonTooLarge, "%d bytes, at most %d", len(data), MaxBytes)
	}
	depth, nested, inString, escaped := 0, 0, false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped = c == '\\'
			inString = c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return false, malformed(ReasonTooDeep, "nested more than %d deep", MaxDepth)
			}
			if nested++; nested > MaxNested {
				return false, malformed(ReasonTooLarge, "more than %d objects and lists", MaxNested)
			}
		case c == '}' || c == ']':
			depth--
		case c == 'n':
			hasNull = true
		}
	}
	return hasNull, nil
}

// MostOfMessage bounds, in bytes, what is taken of a refusal's text: it goes into the pod's status and Events.
const MostOfMessage = 1024

// Beginning cuts a text to so many bytes, between characters.
func Beginning(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}

// PreemptorUID is of the pod or PodGroup that room is made for; empty for a quota order.
func (o *EvictionOrder) PreemptorUID() string {
	switch {
	case o.Kind == KindGroup && o.Group != nil:
		return o.Group.UID
	case o.Kind != KindGroup && o.Preemptor != nil:
		return o.Preemptor.UID
	}
	return ""
}

package wire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testdata = "../testdata"

// kinds gives a new struct for each kind of golden file, the part of its name before the first dot.
var kinds = map[string]func() any{
	"plan-request": func() any { return &PlanRequest{} },
	"plan-reply":   func() any { return &PlanReply{} },
	"order":        func() any { return &EvictionOrder{} },
	"outcome":      func() any { return &Outcome{} },
	"control":      func() any { return &ControlState{} },

	"commit":       func() any { return &CommitRequest{} },
	"commit-reply": func() any { return &CommitReply{} },

	"component-status": func() any { return &ComponentStatus{} },
}

// notSpoken are kinds of golden files that the scheduler neither writes nor reads.
var notSpoken = map[string]bool{"begun": true, "comparison": true, "decision": true, "offer": true}

func read(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(testdata, pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("no golden files at %s/%s", testdata, pattern)
	}
	files := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(path), ".json")] = bytes.TrimSuffix(data, []byte("\n"))
	}
	return files
}

func TestGoWritesEveryMessageAsPythonDoes(t *testing.T) {
	for name, golden := range read(t, "*.json") {
		kind, _, _ := strings.Cut(name, ".")
		kind, isEnvelope := strings.CutSuffix(kind, "-envelope")
		if notSpoken[kind] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if !isEnvelope {
				message := kinds[kind]()
				if err := Decode(golden, message); err != nil {
					t.Fatal(err)
				}
				compare(t, message, golden)
				return
			}
			message := kinds[kind]()
			envelope, err := Unwrap(golden, "dev.makeway."+kind+".v1", message)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, envelope, golden)
			compare(t, message, envelope.Data)
		})
	}
}

func compare(t *testing.T, message any, golden []byte) {
	t.Helper()
	encoded, err := Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	encoded = withSeparators(encoded)
	if !bytes.Equal(encoded, golden) {
		t.Errorf("encoded again:\n%s\nwant:\n%s", encoded, golden)
	}
}

// withSeparators has the two Unicode line separators that Go writes as escapes as Python writes them.
func withSeparators(encoded []byte) []byte {
	return []byte(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(encoded)))
}

func TestGoMakesTheEnvelopeThatPythonMakes(t *testing.T) {
	for _, name := range []string{"order-envelope.full", "order-envelope.group"} {
		golden := read(t, name+".json")[name]
		order := &EvictionOrder{}
		if _, err := Unwrap(golden, TypeOrder, order); err != nil {
			t.Fatal(err)
		}

		wrapped, err := wrap(TypeOrder, order.OrderID, Source("scheduler", order.Writer), order.PreemptorUID(), order.CreatedAt, order)
		if err != nil {
			t.Fatal(err)
		}

		if wrapped = withSeparators(wrapped); !bytes.Equal(wrapped, golden) {
			t.Errorf("wrapped:\n%s\nwant:\n%s", wrapped, golden)
		}
	}
}

func TestGoRefusesWhatPythonRefusesAndForTheSameReason(t *testing.T) {
	for name, data := range read(t, "malformed/*.json") {
		parts := strings.SplitN(name, ".", 3)
		t.Run(name, func(t *testing.T) {
			err := decodeKind(parts[0], data)

			var malformed *MalformedError
			if !errors.As(err, &malformed) {
				t.Fatalf("got %v, want a MalformedError", err)
			}
			if malformed.Reason != parts[1] {
				t.Errorf("refused as %s (%s), want %s", malformed.Reason, malformed.Detail, parts[1])
			}
		})
	}
}

func decodeKind(kind string, data []byte) error {
	var err error
	switch kind {
	case "plan-request":
		_, err = DecodeVersioned[PlanRequest](data)
	case "plan-reply":
		_, err = DecodeVersioned[PlanReply](data)
	case "control-envelope":
		_, err = Unwrap(data, TypeControl, &ControlState{})
	default:
		_, err = Unwrap(data, TypeOrder, &EvictionOrder{})
	}
	return err
}

func TestAMessageLargerThanTheServerTakesIsRefused(t *testing.T) {
	_, err := DecodeVersioned[PlanReply](bytes.Repeat([]byte(" "), MaxBytes+1))

	var malformed *MalformedError
	if !errors.As(err, &malformed) || malformed.Reason != ReasonTooLarge {
		t.Errorf("got %v, want %s", err, ReasonTooLarge)
	}
}

// wrap encodes a message in an envelope, as its writer does.
func wrap(eventType, id, source, subject string, at Time, message any) ([]byte, error) {
	data, err := Encode(message)
	if err != nil {
		return nil, err
	}
	return Encode(&Envelope{
		SpecVersion: SpecVersion, ID: id, Source: source, Type: eventType, Time: at, DataContentType: "application/json", Subject: subject, Data: data,
	})
}

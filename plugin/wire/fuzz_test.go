package wire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The fuzz targets hold every decoder to three promises: any bytes are a message or a MalformedError;
// what was decoded can be encoded; and that, decoded and encoded again, is the same bytes. Seeds are the
// golden files of both kinds, and what earlier runs have found is kept in testdata/fuzz.

func FuzzDecodePlanReply(f *testing.F) {
	fuzz(f, "plan-reply", func(data []byte) (any, error) { return DecodeVersioned[PlanReply](data) })
}

func FuzzDecodePlanRequest(f *testing.F) {
	fuzz(f, "plan-request", func(data []byte) (any, error) { return DecodeVersioned[PlanRequest](data) })
}

func FuzzUnwrapOrder(f *testing.F) {
	fuzzUnwrap(f, "order", TypeOrder, func() any { return &EvictionOrder{} })
}

func FuzzUnwrapOutcome(f *testing.F) {
	fuzzUnwrap(f, "outcome", TypeOutcome, func() any { return &Outcome{} })
}

func FuzzUnwrapControl(f *testing.F) {
	fuzzUnwrap(f, "control", TypeControl, func() any { return &ControlState{} })
}

func fuzzUnwrap(f *testing.F, kind, eventType string, empty func() any) {
	fuzz(f, kind+"-envelope", func(data []byte) (any, error) {
		message := empty()
		envelope, err := Unwrap(data, eventType, message)
		if err != nil {
			return nil, err
		}
		// The raw data stands for itself; the message in it has to hold too.
		encoded, err := Encode(message)
		if err != nil {
			return nil, err
		}
		envelope.Data = encoded
		return envelope, nil
	})
}

func fuzz(f *testing.F, kind string, decode func([]byte) (any, error)) {
	for _, pattern := range []string{kind + ".*.json", "malformed/" + kind + ".*.json"} {
		paths, err := filepath.Glob(filepath.Join(testdata, pattern))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(bytes.TrimSuffix(data, []byte("\n")))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message, err := decode(data)
		if err != nil {
			var malformed *MalformedError
			if !errors.As(err, &malformed) {
				t.Fatalf("%v is no MalformedError", err)
			}
			return
		}
		first, err := Encode(message)
		if err != nil {
			t.Fatalf("decoded, but cannot be encoded: %v", err)
		}
		again, err := decode(first)
		if err != nil {
			if len(first) > MaxBytes {
				return // escapes may make it longer than it was
			}
			t.Fatalf("encoded, but cannot be decoded: %v\n%s", err, first)
		}
		second, err := Encode(again)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("not the same the second time (%v):\n%s\n%s", err, first, second)
		}
	})
}

func TestWhatGoWouldReadOtherwiseThanPythonIsRefused(t *testing.T) {
	good := string(read(t, "order-envelope.minimal.json")["order-envelope.minimal"])
	for name, change := range map[string]struct{ from, to string }{
		"a key in another case":       {`"orderId":`, `"orderID":`},
		"a key that is there twice":   {`"kind":`, `"kind":"pod","kind":`},
		"null for a text":             {`"kind":"quota"`, `"kind":null`},
		"null for a list":             {`"notAfter":`, `"victims":null,"notAfter":`},
		"null for an optional text":   {`"notAfter":`, `"node":null,"notAfter":`},
		"null for an optional number": {`"notAfter":`, `"pdbViolations":null,"notAfter":`},
		"null for a time":             {`"createdAt":`, `"createdAt":null,"x":`},
		"a kind that there is not":    {`"kind":"quota"`, `"kind":"queue"`},
		"an id that is no token":      {`"orderId":"`, `"orderId":"a.`},
		"a required text is missing":  {`"writer":`, `"written":`},
		"a required time is missing":  {`"createdAt":`, `"created":`},
		"a number with a fraction":    {`"epoch":`, `"epoch":1.0,"x":`},
		"a number beyond 64 bits":     {`"epoch":`, `"epoch":9223372036854775808,"x":`},
		"a comma before the fraction": {`"createdAt":"2026-01-31T12:00:00`, `"createdAt":"2026-01-31T12:00:00,5`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(good, change.from, change.to, 1)
			if changed == good {
				t.Fatalf("%s is not in %s", change.from, good)
			}
			var malformed *MalformedError
			if _, err := Unwrap([]byte(changed), TypeOrder, &EvictionOrder{}); !errors.As(err, &malformed) || malformed.Reason != ReasonInvalid {
				t.Errorf("got %v, want %s", err, ReasonInvalid)
			}
		})
	}
}

// A list of what protects pods that is null must not be read as a list that names nothing.
func TestNullIsRefusedButInThePodOfAPlanRequest(t *testing.T) {
	control := string(read(t, "control.full.json")["control.full"])
	nulled := strings.Replace(control, `"protecting":[`, `"protecting":null,"before":[`, 1)
	var malformed *MalformedError

	if err := Decode([]byte(nulled), &ControlState{}); nulled == control || !errors.As(err, &malformed) || malformed.Reason != ReasonInvalid {
		t.Errorf("got %v, want %s", err, ReasonInvalid)
	}

	request := string(read(t, "plan-request.minimal.json")["plan-request.minimal"])
	withNull := strings.Replace(request, `"pod":{`, `"pod":{"later":null,`, 1)
	if _, err := DecodeVersioned[PlanRequest]([]byte(withNull)); withNull == request || err != nil {
		t.Errorf("a pod with a null in it: %v", err)
	}
}

func TestMoreObjectsThanAMessageCanHoldAreRefusedUnread(t *testing.T) {
	message := []byte(`{"queues":[` + strings.Repeat("{},", MaxNested) + `{}]}`)
	var malformed *MalformedError

	err := Decode(message, &ControlState{})

	if !errors.As(err, &malformed) || malformed.Reason != ReasonTooLarge {
		t.Errorf("got %v, want %s", err, ReasonTooLarge)
	}
}

func TestAnOrderForMoreMembersThanAPlanMayHaveIsRefused(t *testing.T) {
	order := &EvictionOrder{}
	golden := read(t, "order.group.json")["order.group"]
	if err := Decode(golden, order); err != nil {
		t.Fatal(err)
	}
	for members, want := range map[int]string{MostMembers: "", MostMembers + 1: ReasonInvalid} {
		order.Members = make([]Placement, members)
		for i := range order.Members {
			order.Members[i] = Placement{Namespace: "n", Name: "a", UID: "u", Node: "n"}
		}
		encoded, err := Encode(order)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var malformed *MalformedError
		if errors.As(Decode(encoded, &EvictionOrder{}), &malformed) {
			got = malformed.Reason
		}
		if got != want {
			t.Errorf("%d members: refused as %q, want %q", members, got, want)
		}
	}
}

// Of what docs/consumers.md lists as a difference: what Go takes and Python refuses.
func TestARequiredNumberThatIsMissingIsZero(t *testing.T) {
	good := string(read(t, "order-envelope.minimal.json")["order-envelope.minimal"])
	got := &EvictionOrder{}

	_, err := Unwrap([]byte(strings.Replace(good, `"epoch":`, `"epoche":`, 1)), TypeOrder, got)

	if err != nil || got.Fence.Epoch != 0 {
		t.Errorf("got epoch %d and %v, want 0", got.Fence.Epoch, err)
	}
}

func TestAKeyInAnotherCaseIsIgnored(t *testing.T) {
	good := string(read(t, "order-envelope.minimal.json")["order-envelope.minimal"])
	got := &EvictionOrder{}

	_, err := Unwrap([]byte(strings.Replace(good, `"kind":`, `"Kind":"pod","kind":`, 1)), TypeOrder, got)

	if err != nil || got.Kind != "quota" {
		t.Errorf("got kind %q and %v, want quota", got.Kind, err)
	}
}

func TestAVersionInAnotherCaseIsIgnored(t *testing.T) {
	good := string(read(t, "plan-reply.refused.json")["plan-reply.refused"])

	_, err := DecodeVersioned[PlanReply]([]byte(strings.Replace(good, `{`, `{"apiversion":"makeway.dev/v2",`, 1)))

	if err != nil {
		t.Error(err)
	}
}

// TestVerdictsOnACorpus judges a corpus that the Python side has made, for it to compare. A line is a
// kind, a blank and the message in hexadecimal; a line of the answer is a reason, or ok.
func TestVerdictsOnACorpus(t *testing.T) {
	path := os.Getenv("MAKEWAY_CORPUS")
	if path == "" {
		t.Skip("MAKEWAY_CORPUS names no corpus")
	}
	verdicts, err := judge(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".verdicts", verdicts, 0o600); err != nil {
		t.Fatal(err)
	}
}

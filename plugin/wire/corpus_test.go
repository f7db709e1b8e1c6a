package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

// judge decodes every line of a corpus and gives a verdict a line.
func judge(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var verdicts bytes.Buffer
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4*MaxBytes)
	for lines.Scan() {
		kind, encoded, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		data, err := hex.DecodeString(string(encoded))
		if err != nil {
			return nil, err
		}
		verdict := "ok"
		if err := decodeAny(string(kind), data); err != nil {
			var malformed *MalformedError
			if !errors.As(err, &malformed) {
				return nil, fmt.Errorf("%s %s: %w", kind, encoded, err)
			}
			verdict = malformed.Reason + " " + fmt.Sprintf("%q", malformed.Detail)
		}
		verdicts.WriteString(verdict + "\n")
	}
	return verdicts.Bytes(), lines.Err()
}

// decodeAny decodes a message by the kind that the golden files' names begin with.
func decodeAny(kind string, data []byte) error {
	var err error
	switch kind {
	case "plan-request":
		_, err = DecodeVersioned[PlanRequest](data)
	case "plan-reply":
		_, err = DecodeVersioned[PlanReply](data)
	case "order-envelope":
		_, err = Unwrap(data, TypeOrder, &EvictionOrder{})
	case "outcome-envelope":
		_, err = Unwrap(data, TypeOutcome, &Outcome{})
	case "control-envelope":
		_, err = Unwrap(data, TypeControl, &ControlState{})
	default:
		err = fmt.Errorf("kind %q", kind)
	}
	return err
}

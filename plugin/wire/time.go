package wire

import (
	"fmt"
	"regexp"
	"time"
)

// rfc3339 is stricter than time.Parse, which takes a comma before the fraction.
var rfc3339 = regexp.MustCompile(`^"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"$`)

// LeavingSlack is how long beyond its grace period a pod that is being deleted is expected to leave; later, its kubelet may be dead.
const LeavingSlack = 60 * time.Second

// Time is a moment in UTC, to the microsecond. On the wire it is RFC 3339 with "Z", and with six
// digits of fraction only where they are not zero, which is how the Python side writes it.
type Time struct{ time.Time }

// At makes a wire time of t, cut to microseconds.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Microsecond)} }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	u := t.UTC()
	layout := `"2006-01-02T15:04:05Z"`
	if u.Nanosecond()/1000 != 0 {
		layout = `"2006-01-02T15:04:05.000000Z"`
	}
	return []byte(u.Format(layout)), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(b []byte) error {
	if !rfc3339.Match(b) {
		return fmt.Errorf("time %s: want RFC 3339, for example 2026-01-31T12:00:00Z", b)
	}
	parsed, err := time.Parse(time.RFC3339Nano, string(b[1:len(b)-1]))
	if err != nil {
		return fmt.Errorf("time %s: want RFC 3339, for example 2026-01-31T12:00:00Z: %w", b, err)
	}
	if year := parsed.UTC().Year(); parsed.Year() < 1 || year < 1 || year > 9999 {
		return fmt.Errorf("time %s: want a year from 1 to 9999 in UTC", b)
	}
	t.Time = parsed.UTC().Truncate(time.Microsecond)
	return nil
}

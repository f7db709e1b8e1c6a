package wire

import (
	"regexp"
	"testing"
	"time"
)

func TestOrderIDsSortByTimeAndNeverRepeat(t *testing.T) {
	form := regexp.MustCompile(`^ord-[0-7][0-9a-hjkmnp-tv-z]{25}$`)
	seen := map[string]bool{}
	last := ""
	for i := range 1000 {
		id := NewOrderID(time.UnixMilli(1_700_000_000_000 + int64(i)))

		if !form.MatchString(id) {
			t.Fatalf("id %q", id)
		}
		if id <= last || seen[id] {
			t.Fatalf("%q after %q", id, last)
		}
		last, seen[id] = id, true
	}
}

func TestIDsOfOneMillisecondDiffer(t *testing.T) {
	now := time.Now()

	if first, second := NewRequestID(now), NewRequestID(now); first == second {
		t.Error("two requests have one id")
	}
}

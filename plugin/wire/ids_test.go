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

func TestSteadyTimeGoesOnWhereTheClockIsSetByALittleAndFollowsWhereItIsSetFar(t *testing.T) {
	began := time.Unix(100_000, 0)
	for set, followed := range map[time.Duration]time.Duration{10 * time.Second: 0, -10 * time.Second: 0, time.Hour: time.Hour, -time.Hour: -time.Hour} {
		clock := steadyTime{began: began}

		if got, want := clock.at(began.Add(5*time.Second+set), 5*time.Second), began.Add(5*time.Second+followed); !got.Equal(want) {
			t.Errorf("set by %s it shows %s, want %s", set, got, want)
		}
	}
	now := time.Now()
	if off := Steady(now).Sub(now.Round(0)); off.Abs() > time.Second {
		t.Errorf("where nothing sets the clock it is off by %s", off)
	}
}

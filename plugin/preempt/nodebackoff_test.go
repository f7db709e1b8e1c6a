package preempt

import (
	"testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestOnlyWhatLiesWithTheNodeKeepsItOut(t *testing.T) {
	for _, test := range []struct {
		result, reason string
		want           bool
	}{
		{wire.ResultFailed, "delete-refused", true},
		{wire.ResultFailed, reasonAwaitedFailed, false},
		{wire.ResultRefused, reasonVictimSpared, true},
		{wire.ResultRefused, "stale-epoch", false},
		{wire.ResultExpired, "expired", false},
		{wire.ResultCancelled, "nomination-moved", false},
	} {
		if got := nodesFault(&wire.Outcome{Result: test.result, Reason: test.reason}); got != test.want {
			t.Errorf("%s, %s: %t", test.result, test.reason, got)
		}
	}
}

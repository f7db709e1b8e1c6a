package preempt

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestWhatNATSDeniedIsTroubleForAMinute(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	denied := &denials{clock: clock}

	denied.note("other", errors.New("slow consumer"))
	if got := denied.lately(); got != "" {
		t.Errorf("got %q for an error that denies nothing", got)
	}

	denied.note("permission", errors.New("permissions violation for publish"))
	if got := denied.lately(); got != "permissions violation for publish" {
		t.Errorf("got %q", got)
	}
	clock.SetTime(clock.Now().Add(61 * time.Second))
	if got := denied.lately(); got != "" {
		t.Errorf("got %q after a minute", got)
	}
}

package natsbus

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestWhatNATSDeniedIsTroubleForAMinute(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	denied := &Denials{Clock: clock}

	denied.Note("other", errors.New("slow consumer"))
	if got := denied.Lately(); got != "" {
		t.Errorf("got %q for an error that denies nothing", got)
	}

	denied.Note("permission", errors.New("permissions violation for publish"))
	if got := denied.Lately(); got != "permissions violation for publish" {
		t.Errorf("got %q", got)
	}
	clock.SetTime(clock.Now().Add(61 * time.Second))
	if got := denied.Lately(); got != "" {
		t.Errorf("got %q after a minute", got)
	}
}

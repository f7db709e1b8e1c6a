package natsbus

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestWhatNATSDeniedIsTroubleForAMinute(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	denied := &denials{clock: clock}

	denied.note(errors.New("slow consumer"))
	if got := denied.lately(); got != "" {
		t.Errorf("got %q for an error that denies nothing", got)
	}

	denied.note(fmt.Errorf("%w for publish", nats.ErrPermissionViolation))
	if got := denied.lately(); got != nats.ErrPermissionViolation.Error()+" for publish" {
		t.Errorf("got %q", got)
	}
	clock.SetTime(clock.Now().Add(61 * time.Second))
	if got := denied.lately(); got != "" {
		t.Errorf("got %q after a minute", got)
	}
}

package orders

import (
	"testing"
	"time"

	"makeway.dev/makeway/plugin/wire"
)

func TestTheGateOfAStoredOrderOpensOnceItsTimeIsOverWhateverTheClockOfItsPlannerShows(t *testing.T) {
	now := time.Unix(100_000, 0)
	for planner, opens := range map[time.Duration]time.Duration{
		-time.Hour: time.Minute, -2 * time.Second: time.Minute, 0: time.Minute, 2 * time.Second: 62 * time.Second, time.Hour: 70 * time.Second,
	} {
		made := now.Add(planner)
		order := &wire.EvictionOrder{CreatedAt: wire.At(made), NotAfter: wire.At(made.Add(time.Minute))}

		if got := OpensAt(order, now).Sub(now); got != opens+GateSlack {
			t.Errorf("with a planner %s ahead it opens after %s, want %s", planner, got, opens+GateSlack)
		}
	}
}

package orders

import (
	"errors"
	"testing"
	"time"

	"makeway.dev/makeway/plugin/wire"
)

func TestUnansweredOrders(t *testing.T) {
	now := time.Unix(1000, 0)
	made := func(id, pod string, at Phase, age, left time.Duration) *Order {
		return &Order{OrderID: id, Preemptor: wire.PodRef{UID: pod}, Phase: at, CreatedAt: now.Add(-age), OpensAt: now.Add(left + GateSlack)}
	}
	f := NewInFlight(noQuota{})
	f.put(made("young", "a", Committed, time.Second, time.Minute))
	f.put(made("later", "b", Committed, 4*time.Second, time.Minute))
	f.put(made("oldest", "c", Committed, 9*time.Second, time.Minute))
	f.put(made("not stored", "d", Planned, 9*time.Second, time.Minute))
	f.put(made("ended", "e", Leaving, 9*time.Second, time.Minute))
	f.put(made("past its notAfter", "f", Committed, time.Minute, 0))

	ids := f.Unanswered(now.Add(-UnansweredAfter), now)

	if len(ids) != 2 || ids[0] != "oldest" || ids[1] != "later" {
		t.Errorf("%v", ids)
	}
}

func TestAnOrderThatWasGivenUpIsNotAskedFor(t *testing.T) {
	f := NewInFlight(noQuota{})
	now := time.Now()
	f.Begin(&Order{OrderID: "ord-1", Preemptor: wire.PodRef{Namespace: "default", Name: "p", UID: "p"}, OpensAt: now})
	f.Due(now)

	if err := f.Asking("ord-1"); !errors.Is(err, errGivenUp) {
		t.Errorf("error %v, want that it was given up", err)
	}
}

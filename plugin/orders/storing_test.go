package orders

import (
	"errors"
	"testing"
	"time"

	"makeway.dev/makeway/plugin/wire"
)

func TestAnOrderThatWasGivenUpIsNotAskedFor(t *testing.T) {
	f := NewInFlight(noQuota{})
	now := time.Now()
	f.Begin(&Order{OrderID: "ord-1", Preemptor: wire.PodRef{Namespace: "default", Name: "p", UID: "p"}, OpensAt: now})
	f.Due(now)

	if err := f.Asking("ord-1"); !errors.Is(err, errGivenUp) {
		t.Errorf("error %v, want that it was given up", err)
	}
}

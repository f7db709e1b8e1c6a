package orders

import (
	"slices"
	"strings"
	"time"

	"makeway.dev/makeway/plugin/internal/goroutines"
)

// Due lets happen what the time and what is known bring about, and returns which pods to activate now and the time at which
// to ask again (zero: when something changes). O(entries × victims).
func (f *InFlight) Due(now time.Time) (activations []Activation, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := func(at time.Time) { next = goroutines.Sooner(next, at) }
	// What happens to one may be what another waits for that was looked at before.
	for moved := true; moved; {
		moved = false
		for _, e := range f.byPod {
			for happened := f.due(e, now, again); happened != nothing; happened = f.due(e, now, again) {
				activations, moved = append(activations, f.bring(e, happened, now)...), true
			}
		}
	}
	slices.SortFunc(activations, func(a, b Activation) int { return strings.Compare(a.OrderID, b.OrderID) })
	return activations, next
}

// bring lets an event happen to an order that is due, and returns whom the caller is to activate.
func (f *InFlight) bring(e *Order, happened event, now time.Time) (activations []Activation) {
	before := e.Phase
	_, asked, _ := step(before, happened)
	f.happens(e, happened)
	why := reasonOf(before, happened)
	if e.Phase == Reverting {
		e.revertFrom(why, now)
		e.Unanswered = e.Own && before == Committed
	}
	if e.Phase == Released {
		e.reservedUntil = now.Add(releasedLasts)
	}
	w := Activation{Order: e.copied(), Reason: why}
	if happened == onVictimsGone && e.early == 0 { // else its cycle is repeated
		w.Waited = now.Sub(e.CreatedAt)
	}
	for _, effect := range asked {
		switch {
		case effect == activate, effect == activateHeld && e.held:
			e.held = false
			activations = append(activations, w)
		case effect == revert:
			w.Revert, w.Reason, w.Unstored = true, e.reason, !e.wasStored
			activations = append(activations, w)
		}
	}
	return activations
}

// due returns what is to happen to an order now, and otherwise calls again with when to ask again.
func (f *InFlight) due(e *Order, now time.Time, again func(time.Time)) event {
	late := func(at time.Time) event {
		if now.Before(at) {
			again(at)
			return nothing
		}
		return onExpired
	}
	switch {
	case e.Phase.live():
		return late(e.OpensAt)
	case e.Phase == Leaving && e.nodeGone:
		return onNodeDeleted
	case e.Phase == Leaving && e.nominationTaken:
		return onNominationGone
	case e.Phase == Leaving && now.Before(e.OpensAt) && e.gone(now, again) && !f.makeRoom(e.beside):
		return onVictimsGone
	case e.Phase == Leaving && e.Gated && now.Before(e.OpensAt) && (!e.leavesSoon() || f.makeRoom(e.beside)):
		return e.holdEnds(now, again)
	case e.Phase == Leaving:
		return late(e.OpensAt)
	case e.Phase == Released:
		return late(e.reservedUntil)
	case e.Phase == Reverting && now.Before(e.notBefore):
		again(e.notBefore)
	case e.Phase == Reverting && e.nominationTaken:
		return onNominationGone
	case e.Phase == Reverting:
		return late(e.revertAt)
	}
	return nothing
}

// holdEnds returns that the gate of a leaving one opens now, and otherwise when to look again.
func (e *Order) holdEnds(now time.Time, again func(time.Time)) event {
	if !now.Before(e.heldUntil) {
		return onHoldEnded
	}
	again(Earlier(e.heldUntil, e.OpensAt))
	return nothing
}

// leavesSoon reports whether all that e waits for has been reported deleted: what opens the gate for good comes in a moment.
func (e *Order) leavesSoon() bool {
	for _, seen := range e.Remaining {
		if seen.IsZero() {
			return false
		}
	}
	return true
}

// reasonOf returns why an order ended, or its pod is activated.
func reasonOf(before Phase, happened event) string {
	switch happened {
	case onNodeDeleted:
		return "its node was deleted"
	case onNominationGone:
		return "its nomination was taken away"
	case onVictimsGone:
		return "the last victim has left"
	case onHoldEnded:
		return "victims are leaving, and other room may have come"
	}
	if before == Leaving {
		return "victims are still there after their grace period and 60 s"
	}
	return "the order had no outcome in time"
}

// gone reports whether everything that e waits for has left the scheduler's cache, and otherwise when to
// look again.
func (e *Order) gone(now time.Time, again func(time.Time)) bool {
	for uid, seen := range e.Remaining {
		if seen.IsZero() {
			continue
		}
		if at := seen.Add(Settle); now.Before(at) {
			again(at)
			continue
		}
		delete(e.Remaining, uid)
	}
	if len(e.Remaining) > 0 {
		return false
	}
	if now.Before(e.notBefore) {
		again(e.notBefore)
		return false
	}
	return true
}

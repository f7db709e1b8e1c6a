package orders

// This file is the whole life of an order as the plugin sees it, as a table: what happens in a phase leads to a phase, with
// effects. It decides and does nothing; inflight carries the effects out. A pair of phase and event that is not in
// the table changes nothing.

//go:generate go test -run ^(TestTheDiagramsShowTheTable|TestTheExportedTableIsTheTable)$ . -update

// Phase is how far a preemptor has come. Of the table below, without what leaves the phase as it is, and what ends an order in
// every phase: that another one takes its place, or that its pod needs no room any more:
//
// diagram: begin
//
//	absent          -> storing         : nominated (close gate)
//	absent          -> committed       : adopted
//	storing         -> committed       : stored
//	storing         -> leaving         : succeeded
//	storing         -> reverting       : failed, expired
//	storing         -> orphaned        : preemptorGone (open gate)
//	committed       -> leaving         : succeeded
//	committed       -> reverting       : failed, expired
//	committed       -> orphaned        : preemptorGone (open gate)
//	leaving         -> absent          : expired (activate), nodeUnresolvable, nominationGone (activate), preemptorGone
//	leaving         -> released        : victimsGone (open gate, activate)
//	leaving         -> reverting       : failed, nodeDeleted
//	released        -> absent          : expired, preemptorGone, cycleFailed, cycleEnded
//	released        -> leaving         : cycleTooEarly (close gate)
//	released        -> reverting       : failed, membersMissing (close gate)
//	reverting       -> absent          : preemptorGone
//	reverting       -> clearing        : expired (revert), nominationGone (revert)
//	clearing        -> absent          : reverted, preemptorGone
//	clearing        -> reverting       : revertFailed
//	orphaned        -> absent          : succeeded, failed, expired
//
// diagram: end
type Phase string

const (
	absent    Phase = ""          // no order is known
	Storing   Phase = "storing"   // nominated; the order may be in the stream
	Committed Phase = "committed" // the order is in the stream, without outcome
	Leaving   Phase = "leaving"   // the order succeeded: it is settled, and in no bound; victims have not all left the scheduler's cache. A cycle of the pod may find other room
	Released  Phase = "released"  // activated; it keeps its place in its queue until its cycle ends, or for a while
	Reverting Phase = "reverting" // the order came to nothing; the nomination is to be deleted once the API shows it gone, or soon
	Clearing  Phase = "clearing"  // the nomination is being deleted, and only then the gate opens: a cycle in between could nominate the pod again
	orphaned  Phase = "orphaned"  // as storing or committed, and the preemptor is gone or bound
)

// Reverts reports whether the order came to nothing.
func (p Phase) Reverts() bool { return p == Reverting || p == Clearing }

// live reports whether the order has no outcome. One that succeeded is settled: the API shows its victims as leaving, so that it is in
// no bound and in no plan request.
func (p Phase) live() bool { return p == Storing || p == Committed || p == orphaned }

// event is what happens to a preemptor or its order.
type event string

const (
	nothing            event = ""
	onNominated        event = "nominated"        // PostFilter nominated the pod
	onAdopted          event = "adopted"          // another process' order was read from the stream
	onReplaced         event = "replaced"         // another order of the pod takes its place
	onStored           event = "stored"           // the stream has taken the order
	onNotNeeded        event = "notNeeded"        // the order was not stored, and its pod needs no room any more
	onSuperseded       event = "superseded"       // the stream has another live order of the pod
	onSucceeded        event = "succeeded"        // the victims are deleted or leaving
	onFailed           event = "failed"           // the order failed, or was not stored
	onExpired          event = "expired"          // the time of the phase is over
	onNodeDeleted      event = "nodeDeleted"      // the node was deleted
	onNodeUnresolvable event = "nodeUnresolvable" // in a cycle of the pod no removal of pods helps on the node, or it is not in the snapshot
	onNominationGone   event = "nominationGone"   // the API shows the pod nominated elsewhere, or not at all
	onVictimsGone      event = "victimsGone"      // the last victim has left the scheduler's cache
	onReverted         event = "reverted"         // the nomination was deleted in memory
	onRevertFailed     event = "revertFailed"     // its deletion was not carried out
	onPreemptorGone    event = "preemptorGone"    // the pod was bound or deleted
	onCycleFailed      event = "cycleFailed"      // a cycle of the pod failed
	onCycleTooEarly    event = "cycleTooEarly"    // a cycle of the pod failed, with a victim still in the scheduler's snapshot
	onCycleEnded       event = "cycleEnded"       // a cycle of the pod has ended
	onHoldEnded        event = "holdEnded"        // the wait after the order succeeded, or after a failed cycle, is over
	onMembersMissing   event = "membersMissing"   // its gang has had too few pods for a while, and comes to no cycle
)

// effect is what a transition asks its caller to do.
type effect string

const (
	holdPlace    effect = "hold place"       // the pod holds the place in its queue
	releasePlace effect = "release place"    // and does not any more
	closeGate    effect = "close gate"       // PreEnqueue holds the pod
	openGate     effect = "open gate"        // and lets it pass
	activate     effect = "activate"         // the pod is to be tried again
	activateHeld effect = "activate if held" // the same where PreEnqueue has held it: the queue tells a gated pod of nothing
	revert       effect = "revert"           // the nomination is to be deleted, and then the pod to be tried again
)

// transition is a row of the table.
type transition struct {
	from    []Phase
	event   event
	to      Phase // one of its own: the phase stays
	effects []effect
}

// same stands for the phase that a transition comes from.
const same Phase = "same"

var table = []transition{
	{from(absent), onNominated, Storing, then(holdPlace, closeGate)},
	{from(absent), onAdopted, Committed, then(holdPlace)}, // gated from its first failed cycle on: a gated pod is not entered into the nominator

	{from(Storing), onStored, Committed, nil},
	{from(orphaned), onStored, same, nil},

	{from(Storing, Committed), onSucceeded, Leaving, nil},
	{from(Storing, Committed), onExpired, Reverting, nil},
	{from(Storing, Committed, Leaving, Released), onFailed, Reverting, nil},

	{from(Leaving), onHoldEnded, same, then(openGate, activateHeld)},
	{from(Leaving), onVictimsGone, Released, then(openGate, activate)},
	{from(Leaving), onNodeDeleted, Reverting, nil},
	{from(Leaving), onNodeUnresolvable, absent, then(releasePlace)},         // its cycle goes on, and plans anew
	{from(Leaving), onNominationGone, absent, then(releasePlace, activate)}, // a pod of higher priority has taken the place
	{from(Leaving), onExpired, absent, then(releasePlace, activate)},        // their kubelet may be dead

	{from(Released), onCycleTooEarly, Leaving, then(closeGate)},
	{from(Released), onCycleFailed, absent, then(releasePlace)},
	{from(Released), onCycleEnded, absent, then(releasePlace)},
	{from(Released), onExpired, absent, then(releasePlace)},
	{from(Released), onMembersMissing, Reverting, then(closeGate)}, // nothing else would take the nominations back

	{from(Reverting), onNominationGone, Clearing, then(revert)},
	{from(Reverting), onExpired, Clearing, then(revert)},
	{from(Clearing), onReverted, absent, then(releasePlace)},
	{from(Clearing), onRevertFailed, Reverting, nil},

	// A pod with an order is refused another one, and held from then on; once the order has succeeded, for a while.
	{from(Storing, Committed, Leaving, Reverting, Clearing, orphaned), onCycleFailed, same, then(closeGate)},

	// An order that may be in the stream may still remove its victims, on which plans for others count, so that it is known until its end.
	{from(Storing, Committed), onPreemptorGone, orphaned, then(openGate)},
	{from(Leaving, Released, Reverting, Clearing), onPreemptorGone, absent, then(releasePlace)},
	{from(orphaned), onSucceeded, absent, then(releasePlace)},
	{from(orphaned), onFailed, absent, then(releasePlace)},
	{from(orphaned), onExpired, absent, then(releasePlace)},

	{known(), onReplaced, absent, then(releasePlace)},
	{known(), onSuperseded, absent, then(releasePlace)},
	{known(), onNotNeeded, absent, then(releasePlace)},
}

func from(phases ...Phase) []Phase    { return phases }
func then(effects ...effect) []effect { return effects }

// known are the phases in which an order is known.
func known() []Phase {
	return from(Storing, Committed, Leaving, Released, Reverting, Clearing, orphaned)
}

// steps is the table by phase and event.
var steps = func() map[Phase]map[event]*transition {
	steps := map[Phase]map[event]*transition{}
	for i := range table {
		for _, at := range table[i].from {
			if steps[at] == nil {
				steps[at] = map[event]*transition{}
			}
			steps[at][table[i].event] = &table[i]
		}
	}
	return steps
}()

// step returns what an event in a phase leads to, and what is to be done. ok is false where it changes nothing. O(1).
func step(at Phase, happened event) (to Phase, effects []effect, ok bool) {
	found := steps[at][happened]
	switch {
	case found == nil:
		return at, nil, false
	case found.to == same:
		return at, found.effects, true
	}
	return found.to, found.effects, true
}

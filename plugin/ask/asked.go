package ask

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// How long a cycle waits for an answer, and how long one is of use that came later.
const (
	// LeastWait is how long a cycle waits beyond the time that its filters took.
	LeastWait = 10 * time.Millisecond
	// CrowdedWait is how long a cycle waits at the least while answers that are kept go unused, unless they take longer: so many pods
	// wait for their turns that giving up costs all cycles of a round of the queue, and the plan is made anew.
	CrowdedWait = 100 * time.Millisecond
	// crowdedFor is how long that is so after an answer that was not used in time.
	crowdedFor = 30 * time.Second
	// UsedWithin is how soon an answer that is kept is used where few pods wait for their turns; the planner pledges what it takes for
	// as long.
	UsedWithin = 5 * time.Second
	// MostGroupWait is how long a cycle of a group waits however long its filters took.
	MostGroupWait = time.Second
	// AnsweredWithin is how long an answer may take, at the least, before it counts as lost.
	AnsweredWithin = time.Second
	// lateLasts is how long an answer is kept that came after its cycle: until each of a thousand pods has had its turn. Once it is
	// pledged no more, another's order may take its room, which the filters and the planner's judgement of the commit find out.
	lateLasts = 30 * time.Second
)

// ErrLate says that the answer has not come within the time that a cycle waits for it. It may come yet.
var ErrLate = errors.New("the planner has not answered yet")

// Asked is a question under way and, once it has come, its answer.
type Asked struct {
	At    uint64       // when it was asked, as the caller counts
	Span  tracing.Span // of the attempt that asked, with which the next one goes on
	Again bool         // after a late answer that failed verification
	told  atomic.Bool  // the preemptor was told that the answer has come

	answered chan struct{} // closed once the rest is set
	reply    *wire.PlanReply
	err      error
}

// NewAsked is a question that is about to be asked, at a moment as the caller counts.
func NewAsked(at uint64) *Asked {
	return &Asked{At: at, answered: make(chan struct{}), err: errors.New("a panic was recovered, see the scheduler's log")}
}

// Ask asks, and has those who wait for the answer go on.
func (a *Asked) Ask(ask func() (*wire.PlanReply, error)) {
	defer close(a.answered)
	a.reply, a.err = ask()
}

// Answered is closed once the answer has come, or none comes any more.
func (a *Asked) Answered() <-chan struct{} { return a.answered }

// Await returns the answer. Where none has come within so much time, or by the end of the context, the error is ErrLate.
func (a *Asked) Await(ctx context.Context, patience time.Duration) (*wire.PlanReply, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a.answered:
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-a.answered:
		return a.reply, a.err
	default:
		return nil, ErrLate
	}
}

// Late are questions whose cycles have ended before the answers came, by preemptor. An answer is of use to the preemptor's next cycle
// where that asks of the same; the cycle verifies it as any other. Safe for concurrent use.
type Late struct {
	Lasts    time.Duration // that an answer is kept
	most     int
	outdated atomic.Uint64 // how often all answers have become useless

	mu      sync.Mutex
	of      map[types.UID]Kept
	crowded map[string]time.Time // until when cycles wait longer, by namespace: what one tenant's pods do not use keeps no others longer
}

// Kept is a question whose cycle has ended before the answer came.
type Kept struct {
	*Asked
	Namespace string
	Priority  int32
	Of        string // what it is of
	Dropped   func() // is called where another question takes its place
}

// NewLate keeps so many questions at most.
func NewLate(most int) *Late {
	return &Late{Lasts: lateLasts, most: most, of: map[types.UID]Kept{}, crowded: map[string]time.Time{}}
}

// Keep keeps a preemptor's question, and reports whether there is a place for it. Where all are taken, one of the namespace with the most
// loses its place, the least important: that of another, or this one. O(questions).
func (l *Late) Keep(uid types.UID, one Kept) bool {
	l.mu.Lock()
	other := types.UID("")
	_, place := l.of[uid]
	if !place {
		other, place = l.place(one.Namespace, one.Priority)
	}
	dropped := l.of[other].Dropped
	if place {
		l.drop(other)
		l.of[uid] = one
	}
	l.mu.Unlock()
	if dropped != nil {
		dropped()
	}
	return place
}

// Room reports whether a question about one more preemptor of a namespace and priority would be kept. O(questions).
func (l *Late) Room(namespace string, priority int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, room := l.place(namespace, priority)
	return room
}

// place finds a place for one more question: a free one, else that of another preemptor. The caller holds the lock.
func (l *Late) place(namespace string, priority int32) (other types.UID, ok bool) {
	if len(l.of) < l.most {
		return "", true
	}
	counts, most := map[string]int{namespace: 1}, 1
	for _, one := range l.of {
		counts[one.Namespace]++
		most = max(most, counts[one.Namespace])
	}
	for uid, one := range l.of {
		goes := counts[one.Namespace] == most && (counts[namespace] < most || one.Priority < priority)
		if goes && (!ok || one.Priority < l.of[other].Priority) {
			other, ok = uid, true
		}
	}
	return other, ok
}

// drop keeps a question no longer: no attempt goes on with its span. The caller holds the lock.
func (l *Late) drop(uid types.UID) {
	if one, there := l.of[uid]; there {
		one.Span.End(nil, "result", "late")
		delete(l.of, uid)
	}
}

// Take returns a preemptor's question, and keeps it no longer; nil where there is none. useless: there was one, of something else.
func (l *Late) Take(uid types.UID, of string) (asked *Asked, useless bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, there := l.of[uid]
	if there && one.Of != of {
		l.drop(uid)
		return nil, true
	}
	delete(l.of, uid)
	return one.Asked, false
}

// Of is the question of a preemptor that is kept; nil where none is.
func (l *Late) Of(uid types.UID) *Asked {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[uid].Asked
}

// Tell reports whether a preemptor is to be told of an answer that has come: its question is kept, and it was not told before.
func (l *Late) Tell(uid types.UID, asked *Asked) bool {
	return l.Of(uid) == asked && !asked.told.Swap(true)
}

// End keeps a question no longer, and reports whether it was kept.
func (l *Late) End(uid types.UID, asked *Asked) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[uid].Asked != asked {
		return false
	}
	l.drop(uid)
	return true
}

// Unused notes that an answer for a pod of a namespace was not used in time: its next cycle has not come, or too many are kept already.
func (l *Late) Unused(namespace string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.crowded, func(_ string, until time.Time) bool { return !now.Before(until) })
	l.crowded[namespace] = now.Add(crowdedFor)
}

// Crowded reports whether answers that are kept for pods of a namespace go unused.
func (l *Late) Crowded(namespace string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.crowded[namespace])
}

// Forget keeps no question of a preemptor any longer: it is bound, gone, or has its order.
func (l *Late) Forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(uid)
}

// Outdate makes the answers to all questions useless, also to those that are kept later. Their preemptors are still tried again when they
// come.
func (l *Late) Outdate() { l.outdated.Add(1) }

// Now is a text that changes when answers become useless.
func (l *Late) Now() string { return strconv.FormatUint(l.outdated.Load(), 10) }

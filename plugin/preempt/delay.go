package preempt

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/rules"
	"makeway.dev/makeway/plugin/wire"
)

// classesAwaited is how long after the start pods wait for PriorityClasses to be read; where they may not be listed,
// nothing is delayed after that. classesRetry is when such a pod is tried again.
const (
	classesAwaited = 10 * time.Second
	classesRetry   = time.Second
)

// delays remembers since when pods of delayed classes are unschedulable. Bounded: beyond maxRefused pods, their
// conditions alone say it. Safe for concurrent use.
type delays struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

func newDelays() *delays { return &delays{since: map[types.UID]time.Time{}} }

// of is since when a pod that no node fits now is unschedulable.
func (d *delays) of(pod *v1.Pod, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, known := d.since[pod.UID]
	if !known {
		since = rules.UnschedulableSince(pod, now)
		if len(d.since) < maxRefused {
			d.since[pod.UID] = since
		}
	}
	return since
}

func (d *delays) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.since, uid)
}

// delayedUntil is the moment from which on a pod may preempt, by its PriorityClass, and why; zero where nothing delays it. An annotation
// that cannot be read delays nothing: the planner warns of it.
func (e *engine) delayedUntil(pod *v1.Pod) (until time.Time, why string) {
	name, now := pod.Spec.PriorityClassName, e.clock.Now()
	if name == "" {
		return time.Time{}, ""
	}
	if !e.classesSynced() {
		if now.Before(e.started.Add(classesAwaited)) {
			return now.Add(classesRetry), "the PriorityClasses have not been read yet"
		}
		return time.Time{}, ""
	}
	class, err := e.classes.Get(name)
	if err != nil {
		return time.Time{}, ""
	}
	delay, err := rules.DelayOf(class)
	if err != nil || delay == 0 {
		return time.Time{}, ""
	}
	if until = e.delays.of(pod, now).Add(delay); !now.Before(until) {
		return time.Time{}, ""
	}
	return until, fmt.Sprintf("PriorityClass %s has %s %s", name, rules.PreemptionDelay, class.Annotations[rules.PreemptionDelay])
}

// delayed ends an attempt of a pod whose class lets it wait before it preempts, in mode enforce; nil where it may preempt now. The
// pod is tried again when the delay is over, or when its class changes.
func (pl *MakeWay) delayed(pod *v1.Pod, mode string) *preemptResult {
	if mode != wire.ModeEnforce {
		return nil
	}
	looked := pl.engine.retry.now()
	until, why := pl.engine.delayedUntil(pod)
	if until.IsZero() {
		return nil
	}
	pl.engine.retry.refuse(orders.RefOf(pod), looked, until, []wire.Dependency{{Kind: kindPriorityClass, Name: pod.Spec.PriorityClassName}})
	return &preemptResult{kind: endDelayed, message: fmt.Sprintf("preemption is delayed until %s: %s", until.UTC().Format(time.RFC3339), why)}
}

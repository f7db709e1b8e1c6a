package preempt

import (
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/orders"
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
		since = unschedulableSince(pod, now)
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
	delay, err := delayOf(class)
	if err != nil || delay == 0 {
		return time.Time{}, ""
	}
	if until = e.delays.of(pod, now).Add(delay); !now.Before(until) {
		return time.Time{}, ""
	}
	return until, fmt.Sprintf("PriorityClass %s has %s %s", name, preemptionDelay, class.Annotations[preemptionDelay])
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

// preemptionDelay is an annotation of a PriorityClass: so long its pods are pending before they preempt; a Go duration.
const preemptionDelay = "makeway.dev/preemption-delay"

// longestDelay is the longest that is accepted.
const longestDelay = time.Hour

// longestDelayText bounds the annotation's value, in bytes; with so few no number is too large for either language.
const longestDelayText = 16

// delayOf reads the annotation: 0 where there is none, or no class. The error says what is wrong with a value; it delays
// nothing. O(1).
func delayOf(class *schedulingv1.PriorityClass) (time.Duration, error) {
	if class == nil {
		return 0, nil
	}
	text, there := class.Annotations[preemptionDelay]
	if !there {
		return 0, nil
	}
	delay, err := time.ParseDuration(text)
	if len(text) > longestDelayText || err != nil || strings.HasPrefix(text, "-") || delay > longestDelay {
		return 0, fmt.Errorf("annotation %s: %.80q is no duration such as 30s or 5m, at most %s", preemptionDelay, text, longestDelay)
	}
	return delay, nil
}

// unschedulableSince is since when no node fits a pod that none fits now, as its condition says it; else now. Whoever asks
// keeps the first answer: later on the condition may name an earlier moment, since where its queue or scheduling gates held
// the pod before, the condition keeps the time from then. O(conditions).
func unschedulableSince(pod *v1.Pod, now time.Time) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != v1.PodScheduled {
			continue
		}
		said := condition.LastTransitionTime
		if condition.Status == v1.ConditionFalse && condition.Reason == v1.PodReasonUnschedulable && !said.IsZero() && said.Time.Before(now) {
			return said.Time
		}
		break
	}
	return now
}

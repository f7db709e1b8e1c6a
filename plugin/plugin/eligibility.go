package plugin

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/wire"
)

// excluded ends what is not to be planned for whatever the cluster is like.
func excluded(pod *v1.Pod) *preemptResult {
	if minor.InGroup(pod) {
		return &preemptResult{kind: endPodGroup, message: "pods of a scheduling group have no plan in this version of Kubernetes"}
	}
	if pod.Spec.NodeName != "" {
		return &preemptResult{kind: endPlaced, message: "the resize of a pod on its node has no plan"}
	}
	if ptr.Deref(pod.Spec.PreemptionPolicy, "") == v1.PreemptNever {
		return &preemptResult{kind: endNever, message: "not eligible due to preemptionPolicy=Never"}
	}
	return nil
}

// remembers reports whether an earlier attempt may change a pod's next plan.
func (e *engine) remembers(pod types.UID) bool {
	return e.inflight.Has(pod) || e.planner.Late.Of(pod) != nil || e.verified.samples.Full(e.clock.Now(), pod)
}

// classesAwaited is how long after the start pods wait for PriorityClasses to be read; where they may not be listed,
// nothing is delayed after that. classesRetry is when such a pod is tried again.
const (
	classesAwaited = 10 * time.Second
	classesRetry   = time.Second
)

// delayedUntil is the moment from which on a pod may preempt, by its PriorityClass, and why; zero where nothing delays it. An annotation
// that cannot be read delays nothing: the planner warns of it.
func (e *engine) delayedUntil(pod *v1.Pod) (until time.Time, why string) {
	name, now := pod.Spec.PriorityClassName, e.clock.Now()
	if name == "" {
		return time.Time{}, ""
	}
	if !e.cluster.classesSynced() {
		if now.Before(e.cluster.started.Add(classesAwaited)) {
			return now.Add(classesRetry), "the PriorityClasses have not been read yet"
		}
		return time.Time{}, ""
	}
	class, err := e.cluster.classes.Get(name)
	if err != nil {
		return time.Time{}, ""
	}
	delay, err := memory.DelayOf(class)
	if err != nil || delay == 0 {
		return time.Time{}, ""
	}
	if until = e.memory.Delays.Of(pod, now).Add(delay); !now.Before(until) {
		return time.Time{}, ""
	}
	return until, fmt.Sprintf("PriorityClass %s has %s %s", name, memory.PreemptionDelay, class.Annotations[memory.PreemptionDelay])
}

// delayed ends an attempt whose pods' classes let them wait before they preempt; nil where each may preempt now. It is tried again when the
// last delay is over, or when the class of that changes. O(members).
func (p *preemptor) delayed() *preemptResult {
	looked, until, why, class := p.engine.memory.Retries.Now(), time.Time{}, "", ""
	for _, pod := range p.pods {
		if its, because := p.engine.delayedUntil(pod); its.After(until) {
			until, why, class = its, because, pod.Spec.PriorityClassName
		}
	}
	if until.IsZero() {
		return nil
	}
	p.engine.memory.Retries.Refuse(p.one(), looked, until, []wire.Dependency{{Kind: memory.KindPriorityClass, Name: class}})
	return &preemptResult{kind: endDelayed, message: fmt.Sprintf("preemption is delayed until %s: %s", until.UTC().Format(time.RFC3339), why)}
}

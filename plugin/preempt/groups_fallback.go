package preempt

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/rules"
)

// holdGroup returns why nothing is evicted for a group without a plan; nil where kube-scheduler's own preemption may. It removes all
// pods of lower priority from its view, places the group, and offers them back, by priority alone: no rule is asked about a victim.
// So it acts only where no rule could say no. Each delete is guarded all the same: by limits.victimsPerOrder, and since the policy may
// change.
func (pl *MakeWayFallback) holdGroup(group minor.Group) (status *fwk.Status) {
	outcome := fallbackHeld
	defer func() { fallbackTotal.WithLabelValues(outcome).Inc() }()
	defer goroutines.RecoverPanic(context.Background(), "fallback", func() {
		status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: the fallback: a panic was recovered, see the scheduler's log")
	})
	if why := pl.protects(group); why != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: the fallback evicts nothing for pod groups: "+why)
	}
	outcome = fallbackGroup
	return nil
}

// protects is what of the policy could keep a pod from being evicted; empty where nothing does. O(PriorityClasses + orders in flight
// + queues with a guarantee).
func (pl *MakeWayFallback) protects(group minor.Group) string {
	engine := pl.engineOf()
	if engine == nil {
		return "no profile of this scheduler has the plugin " + Name
	}
	if len(group.Waiting) == 0 {
		return "no member of the group waits"
	}
	for _, pod := range group.Waiting {
		if paused := pl.pauses(pod); paused != "" {
			return paused
		}
	}
	guard := pl.victimGuardFor(group.Waiting[0], nil)
	switch {
	case guard.hold != "":
		return guard.hold
	case guard.rules.holdGroups:
		return "groups.preemptors of the policy is hold"
	case len(guard.rules.protection.Namespaces) > 0 || len(guard.rules.protection.NeverEvict) > 0 || guard.rules.protection.MinimumPriority != nil:
		return "the policy protects pods"
	case len(guard.rules.hardBudgets) > 0:
		return "the policy has hard budgets"
	case guard.margins != nil:
		return "queues have guarantees"
	}
	return engine.tolerations()
}

// tolerations is a PriorityClass, there or on record, whose pods tolerate preemption; empty where there is none.
func (e *engine) tolerations() string {
	if !e.classesSynced() {
		return "the PriorityClasses have not been read"
	}
	classes, err := e.classes.List(labels.Everything())
	if err != nil {
		return fmt.Sprintf("the PriorityClasses are not known: %v", err)
	}
	for _, class := range classes {
		_, priority := class.Annotations[rules.MinimumPreemptablePriority]
		_, seconds := class.Annotations[rules.TolerationSeconds]
		if priority || seconds {
			return "pods of PriorityClass " + class.Name + " tolerate preemption"
		}
	}
	for name := range e.control.tolerationRecord() {
		return "pods of PriorityClass " + name + ", which is on record, tolerate preemption"
	}
	return ""
}

package plugin

import (
	"cmp"
	"fmt"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/wire"
)

// What becomes of an attempt without a plan.
const (
	unplannedLeft       = "left"       // to the plugins after this one
	unplannedRestricted = "restricted" // held: something restricts preemption
	unplannedUnknown    = "unknown"    // held: it is not known whether anything does
	unplannedStopped    = "stopped"    // held: by the brake, or the evictors' breaker
)

// unplanned is what becomes of an attempt without a plan, and why where the pod waits.
type unplanned struct{ result, why string }

var (
	leftToOthers = unplanned{result: unplannedLeft}
	// notFound is what holds where a panic kept it from being found out.
	notFound = unplanned{unplannedUnknown, "it could not be found out what restricts preemption"}
)

// withoutPlan is what becomes of pods of a namespace that there is no plan for. kube-scheduler's own preemption, which knows no policy,
// acts in the modes off and observe, and in mode enforce where nothing restricts preemption: the policy is not looked at pod by pod.
// O(1).
func (pl *MakeWay) withoutPlan(namespace string, priority int32) unplanned {
	e := pl.engine
	if brake := e.control.Brake(); brake.Holds(namespace) {
		return unplanned{unplannedStopped, "the brake is set (" + brake.Scope() + ")"}
	}
	if e.control.Mode(pl.args.Mode, namespace) != wire.ModeEnforce {
		return leftToOthers
	}
	if why := e.memory.EvictorsRefuse(namespace); why != "" {
		return unplanned{unplannedStopped, why.String()}
	}
	return unplannedOf(e.control.Restrictions(), priority)
}

// status is what PostFilter returns for an ending that would leave the pod to the plugins after this one. The preemption after this one
// makes no room either for a pod that never preempts.
func (u unplanned) status(end preemptResult) *fwk.Status {
	if end.kind == endNever {
		return end.status(fwk.Unschedulable)
	}
	unplannedTotal.WithLabelValues(u.result).Inc()
	if u.why == "" {
		return end.status(fwk.Unschedulable)
	}
	end.message += "; nothing is evicted without a plan: " + u.why
	return end.status(fwk.UnschedulableAndUnresolvable)
}

// unplannedOf is what becomes of a pod of a priority that there is no plan for.
func unplannedOf(r control.Restrictions, priority int32) unplanned {
	setting, value := "default", cmp.Or(r.Default, wire.WhenUnplannedHold)
	if priority >= control.SystemPriority {
		setting, value = "system", cmp.Or(r.System, wire.WhenUnplannedFallback)
	}
	switch {
	case r.Unknown != "":
		return unplanned{unplannedUnknown, r.Unknown}
	case len(r.Protecting) > 0:
		return unplanned{unplannedRestricted, "pods are protected by " + strings.Join(r.Protecting, ", ")}
	case len(r.Restricting) > 0 && value != wire.WhenUnplannedFallback:
		return unplanned{unplannedRestricted, fmt.Sprintf("preemption is restricted by %s, and whenUnplanned.%s of the policy is hold", strings.Join(r.Restricting, ", "), setting)}
	}
	return leftToOthers
}

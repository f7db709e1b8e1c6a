package plugin

import (
	"cmp"
	"fmt"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/wire"
)

// outcomeKind is how one PostFilter call ended. Its text is the metric's label.
type outcomeKind string

const (
	// <non-nil result naming the node, Success>. The pod is nominated: a candidate was verified, the
	// pod is marked as preempting, and the order is on its way. PostFilter plugins after this one do
	// not run.
	endNominated outcomeKind = "nominated"

	// The same. The pod is nominated to a node where terminating pods make the room: no order is written, and nothing holds
	// the pod, which the scheduler tries again as they leave.
	endAwaiting outcomeKind = "room_on_its_way"

	// <non-nil result with Override(""), UnschedulableAndUnresolvable>. Removing pods does not help,
	// or no rule allows it: the planner refused, every node where preemption may help
	// failed the scheduler's filters, or there is none. Or the planner cannot read the question about the pod, or this plugin the
	// answer. Or it is of a pod group, and the policy holds those. An old nomination is cleared. The chain stops,
	// so that no author of pods can have the plan left out.
	endRefused      outcomeKind = "refused"
	endUnverifiable outcomeKind = "unverifiable"
	endHopeless     outcomeKind = "hopeless"
	endGroupHeld    outcomeKind = "pod_group_held"
	endUnaskable    outcomeKind = "unaskable"

	// <non-nil result naming the order's node, UnschedulableAndUnresolvable>. Victims of the pod's last order are still leaving. The
	// nomination is kept, also where the informer does not show it yet; the chain stops. Where another scheduler's preemption is waited
	// for, as below.
	endLeaving outcomeKind = "victims_leaving"

	// <nil, UnschedulableAndUnresolvable>. The pod has an order that is alive, or its PriorityClass delays its preemption. The nomination
	// is kept; the chain stops, so that no other plugin evicts more, or earlier.
	endInFlight outcomeKind = "in_flight"
	endDelayed  outcomeKind = "delayed"

	// The same. The planner's answer has not come within the time that a cycle waits. The pod is tried again when it comes.
	endLate outcomeKind = "planner_late"

	// <nil, Unschedulable>: the plugins after this one may act. Or <nil, UnschedulableAndUnresolvable>: for a pod that the queue gate
	// keeps out, and where something restricts preemption, or it is not known whether (unplanned.go). This plugin has nothing to say: the
	// pod may not preempt, belongs to a pod group or has a node and waits there for its resize, or the mode is off or observe. Where the
	// API may still show a nomination that was taken back in memory, the result is Override("") instead of nil, which clears it. The
	// nomination is kept.
	endNever    outcomeKind = "never_preempts"
	endPodGroup outcomeKind = "pod_group"
	endPlaced   outcomeKind = "placed"
	endOff      outcomeKind = "off"
	endObserved outcomeKind = "observed"

	// As before. There is no plan, or it cannot be
	// carried out: the planner is out of reach or has not read the cluster yet, the question is larger than what NATS carries or
	// the planner takes, an extender failed, a panic was recovered,
	// nodes are left to be verified in the next cycles, or eviction orders have lately not been stored, or not been carried
	// out by any evictor.
	endUnreachable outcomeKind = "planner_unreachable"
	endNotSynced   outcomeKind = "planner_not_synced"
	endTooLarge    outcomeKind = "too_large"
	endUnfinished  outcomeKind = "unfinished"
	endNotStored   outcomeKind = "orders_not_stored"
	endNoEvictor   outcomeKind = "no_evictor"
	endError       outcomeKind = "error"
	endPanic       outcomeKind = "panic"
)

// preemptResult is how one PostFilter call ended, with the words for the pod's condition.
type preemptResult struct {
	kind    outcomeKind
	node    string // with endNominated and endAwaiting, and with endLeaving where it is for an order of this process
	message string
	clear   bool // a nomination that the ending would keep was taken back in memory
}

// statusPair is what PostFilter returns for the ending: the pairs documented above, and no other.
func (e preemptResult) statusPair() (*fwk.PostFilterResult, *fwk.Status) {
	switch e.kind {
	case endNominated, endAwaiting:
		return framework.NewPostFilterResultWithNominatedNode(e.node), e.status(fwk.Success)
	case endRefused, endUnverifiable, endHopeless, endGroupHeld, endUnaskable:
		return framework.NewPostFilterResultWithNominatedNode(""), e.status(fwk.UnschedulableAndUnresolvable)
	case endLeaving:
		if e.node != "" {
			return framework.NewPostFilterResultWithNominatedNode(e.node), e.status(fwk.UnschedulableAndUnresolvable)
		}
		return e.keepNomination(), e.status(fwk.UnschedulableAndUnresolvable)
	case endInFlight, endDelayed, endLate:
		return e.keepNomination(), e.status(fwk.UnschedulableAndUnresolvable)
	default:
		return e.keepNomination(), e.status(fwk.Unschedulable)
	}
}

// groupStatus is what PodGroupPostFilter returns for the ending of a pod group. Success comes with the nodes of members: of the new
// order, or of the one whose victims are on their way, since any other status has the scheduler clear the nominations of some
// members and keep those of others. UnschedulableAndUnresolvable stops the chain, and after Unschedulable the plugins after this one may act.
func (e preemptResult) groupStatus() *fwk.Status {
	switch e.kind {
	case endNominated, endAwaiting, endInFlight, endLeaving:
		return e.status(fwk.Success)
	}
	_, status := e.statusPair()
	return status
}

// keepNomination leaves the pod's nomination as it is, unless it was taken back.
func (e preemptResult) keepNomination() *fwk.PostFilterResult {
	if e.clear {
		return framework.NewPostFilterResultWithNominatedNode("")
	}
	return nil
}

// keepsNomination reports whether the ending leaves the pod's nomination as it is though no order stands behind it.
func (e preemptResult) keepsNomination() bool {
	result, _ := e.statusPair()
	return result == nil && e.kind != endInFlight && e.kind != endLeaving
}

func (e preemptResult) status(code fwk.Code) *fwk.Status {
	return fwk.NewStatus(code, "makeway: "+e.message)
}

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
	if why := e.control.EvictorsRefuse(namespace); why != "" {
		return unplanned{unplannedStopped, why}
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

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// preemptor is who is tried in one cycle: a pod, or a pod group by its members. A pod is a group of one.
type preemptor struct {
	*MakeWay
	uid   types.UID // of the pod or the group
	pods  []*v1.Pod // those that need a node
	mode  string    // in force
	asked memory.Moment
	span  tracing.Span
}

// one is the pod by which a preemptor is tried again: to activate one member activates all.
func (p *preemptor) one() wire.PodRef { return orders.RefOf(p.pods[0]) }

// later ends an attempt that comes to no plan; the next one comes later each time.
func (p *preemptor) later(kind outcomeKind, message string) *preemptResult {
	p.engine.memory.Retries.PlanUnavailable(p.one(), time.Time{})
	return &preemptResult{kind: kind, message: message}
}

// modeHeld ends an attempt that the mode lets do nothing, until the policy changes after a moment.
func (p *preemptor) modeHeld(looked memory.Moment, kind outcomeKind, message string) *preemptResult {
	p.engine.memory.Retries.ModeHeld(p.one(), looked)
	return &preemptResult{kind: kind, message: message}
}

// held returns why a preemptor waits in mode enforce, by its PriorityClass or since its order would probably not be stored; nil
// where a plan may be asked for.
func (p *preemptor) held() *preemptResult {
	if p.mode != wire.ModeEnforce {
		return nil
	}
	if end := p.delayed(); end != nil {
		return end
	}
	asked, until := p.engine.memory.Retries.Now(), p.engine.unstoredUntil()
	if until.IsZero() {
		return nil
	}
	p.engine.memory.Retries.Refuse(p.one(), asked, until, []wire.Dependency{{Kind: memory.KindOrders}})
	return &preemptResult{kind: endNotStored, message: notStored + "; an order is tried now and then"}
}

// notStored is why nothing is nominated while commits come to nothing.
const notStored = "eviction orders cannot be stored"

// unstoredUntil is when the next order probes, where the last ones could not be stored; zero where nothing is known against one.
func (e *engine) unstoredUntil() time.Time {
	if state, until := e.planner.Commits.Current(); state != telemetry.Closed && e.clock.Now().Before(until) {
		return until
	}
	return time.Time{}
}

// waitsForOthersVictims is upstream's rule for preemptions that this process does not know of: a pod of lower priority that was
// preempted is terminating on a node that a pod is nominated to, and that it may help to leave. Unlike upstream it ends, at the
// victim's grace period and 60 s, since its kubelet may be dead.
func (p *preemptor) waitsForOthersVictims(helps func(node string) bool) *preemptResult {
	nodes, now, looked := p.handle.SnapshotSharedLister().NodeInfos(), p.engine.clock.Now(), map[string]bool{"": true}
	var until time.Time
	for _, pod := range p.pods {
		name := pod.Status.NominatedNodeName
		if looked[name] || !helps(name) {
			continue
		}
		looked[name] = true
		if node, err := nodes.Get(name); err == nil {
			if deadline := verify.PreemptedUntil(pod, node, now); deadline.After(until) {
				until = deadline
			}
		}
	}
	if until.IsZero() {
		return nil
	}
	p.engine.memory.Retries.Postpone(p.one(), until)
	return &preemptResult{kind: endLeaving, message: "pods preempted on the nominated node are still terminating"}
}

// nominatedBeside returns the other pods that are nominated where a preemptor with an order is, and are of no lower priority: its filters
// count them in. The scheduler copies each of them under its queue's lock, so each node is asked about once.
func (p *preemptor) nominatedBeside() (beside []types.UID) {
	if !p.engine.inflight.Has(p.uid) {
		return nil
	}
	own, asked := make(map[types.UID]bool, len(p.pods)), map[string]bool{"": true}
	for _, pod := range p.pods {
		own[pod.UID] = true
	}
	for _, pod := range p.pods {
		if asked[pod.Status.NominatedNodeName] {
			continue
		}
		asked[pod.Status.NominatedNodeName] = true
		for _, info := range p.handle.NominatedPodsForNode(pod.Status.NominatedNodeName) {
			other := p.engine.podOf(orders.RefOf(info.GetPod())) // of one that has left it the queue knows the name alone
			if corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod) && !own[other.UID] {
				beside = append(beside, other.UID)
			}
		}
	}
	return beside
}

// unreachable ends an attempt without an answer; it is tried again, since no event of the cluster tells when the planner is back.
func (p *preemptor) unreachable(breaker *ask.Breaker, err error) *preemptResult {
	_, probeAt := breaker.Current()
	switch {
	case errors.Is(err, ask.ErrLate):
		return notYet(p.pods[0])
	case errors.Is(err, ask.ErrTooLarge):
		return p.later(endTooLarge, "no plan: "+err.Error())
	case errors.Is(err, ask.ErrUnreadable):
		return p.later(endUnaskable, err.Error())
	case errors.Is(err, ask.ErrBreakerOpen):
		p.engine.memory.Retries.TryAt(p.one(), probeAt)
	default:
		p.engine.memory.Retries.PlanUnavailable(p.one(), probeAt)
	}
	return &preemptResult{kind: endUnreachable, message: "no plan: " + err.Error()}
}

// unplanned ends an attempt whose answer says that nothing was decided; nil where it has a plan or a refusal.
func (p *preemptor) unplanned(status string, refusal *wire.Refusal) *preemptResult {
	message := messageOf(refusal)
	switch {
	case status == wire.StatusNotSynced && refusal != nil && heldBack[refusal.Reason] != "":
		p.engine.memory.Retries.PlanUnavailable(p.one(), time.Time{}, wire.Dependency{Kind: memory.KindOrders})
		return &preemptResult{kind: heldBack[refusal.Reason], message: message}
	case status == wire.StatusNotSynced && ask.Unaskable(refusal):
		return p.later(endUnaskable, "the planner cannot read the question: "+message)
	case status == wire.StatusNotSynced:
		return p.later(endNotSynced, "no plan: "+message)
	}
	return nil
}

// heldBack are the planner's reasons to make no plan since no order would be carried out.
var heldBack = map[string]outcomeKind{"OrdersNotStored": endNotStored, "NoEvictor": endNoEvictor}

// messageOf is what a refusal says.
func messageOf(refusal *wire.Refusal) string {
	if refusal == nil {
		return "the planner does not say why"
	}
	return wire.Beginning(refusal.Message, wire.MostOfMessage)
}

// observe asks the planner and does not wait: what it answers is recorded there, and nothing is done here.
func observe[Reply any](p *preemptor, question func() (ask.Exchange[Reply], error)) *preemptResult {
	if exchange, err := question(); err == nil {
		goroutines.GoRecovered(p.span.In(p.engine.life), "observe", func(ctx context.Context) { _, _ = exchange(ctx) })
	}
	return p.modeHeld(p.engine.memory.Retries.Now(), endObserved, "mode observe")
}

// awaits ends an attempt where terminating pods alone make the room: there is nothing to order, and nothing holds who is nominated. The
// scheduler's own events wake it as they leave, and it is tried again when they are overdue.
func (p *preemptor) awaits(leaving []*v1.Pod, node, where string) preemptResult {
	until := verify.LastOverdueAt(leaving)
	p.engine.memory.Retries.Postpone(p.one(), until)
	return preemptResult{kind: endAwaiting, node: node, message: fmt.Sprintf(
		"no pod is evicted: room %s is on its way, from %d terminating pods; where they are still there at %s, other room is looked for",
		where, len(leaving), until.UTC().Format(time.RFC3339))}
}

// begin marks who is tried as preempting, before the cycle ends and so before any other, and leaves the rest to a goroutine.
func (p *preemptor) begin(order *pendingOrder) {
	e := p.engine
	for _, pod := range p.pods {
		e.memory.Retries.Ordered(pod.UID)
	}
	order.pod, order.span = p.pods[0], p.span
	e.planner.Commits.Allow() // where the last orders were not stored, this one probes
	e.inflight.Begin(order.entry(e.clock.Now()))
	victimsPerOrder.Observe(float64(len(order.chosen.Victims)))
	failpoints.At(failpoints.Nominated)
	e.startCommit(order)
}

// attempted notes how a cycle ended, so that its turn among the pods that wait for orders to end goes to the next, and the room in its
// queue that it was activated for too. What the cycle noted of a pod that was bound or deleted meanwhile came after the informer had
// told of that.
func (p *preemptor) attempted(end preemptResult) {
	e := p.engine
	e.inflight.Cycled(p.uid)
	for _, pod := range p.pods {
		if end.kind != endNominated { // else the order holds the place from now on
			e.gate.Tried(pod.UID)
			e.memory.Retries.Tried(pod.UID)
		}
	}
	e.pending(p.one())
}

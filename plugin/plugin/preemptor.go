package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
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
	uid   types.UID          // of the pod or the group
	pods  []*v1.Pod          // those that need a node
	group *wire.OrderedGroup // nil for a pod
	mode  string             // in force
	after uint64             // the last message of its subject that was read before the cycle looked whether it has an order
	span  tracing.Span
	inquiry
}

// one is the pod by which a preemptor is tried again, of a group the first that still waits: to activate one member activates all.
func (p *preemptor) one() wire.PodRef {
	for _, pod := range p.pods[:len(p.pods)-1] {
		if known := p.engine.current(orders.RefOf(pod)); known != nil && known.Spec.NodeName == "" {
			return orders.RefOf(pod)
		}
	}
	return orders.RefOf(p.pods[len(p.pods)-1])
}

// ref, kind and object name the pod, or the PodGroup, that room is made for.
func (p *preemptor) ref() wire.PodRef {
	if p.group != nil {
		return wire.PodRef{Namespace: p.group.Namespace, Name: p.group.Name, UID: p.group.UID}
	}
	return p.one()
}

func (p *preemptor) kind() string {
	if p.group != nil {
		return wire.KindGroup
	}
	return wire.KindPod
}

func (p *preemptor) object() klog.ObjectRef { return klog.KRef(p.ref().Namespace, p.ref().Name) }

// panicked is how an attempt ends in which a panic was recovered.
var panicked = preemptResult{kind: endPanic, message: "a panic was recovered, see the scheduler's log"}

// try runs an attempt, and returns how it ended and what becomes of the preemptor without a plan, which the attempt finds out first.
func (pl *MakeWay) try(ctx context.Context, counted *metrics.CounterVec, took *metrics.Histogram, attempt func(without *unplanned) preemptResult) (end preemptResult, without unplanned) {
	start := time.Now()
	end, without = panicked, notFound
	defer func() {
		counted.WithLabelValues(string(end.kind)).Inc()
		took.Observe(time.Since(start).Seconds())
	}()
	// Where it calls for a group the scheduler itself would end by a panic.
	defer goroutines.RecoverPanic(ctx, "post_filter", func() { end = panicked })
	end = attempt(&without)
	return end, without
}

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

// ineligible returns why a preemptor may not preempt now, without asking the planner; nil where it may. excluded: why it is not planned
// for whatever the cluster is like; unresolvable reports whether removing pods from a node does not help. ordered: it waits for its own order.
func (p *preemptor) ineligible(excluded *preemptResult, unresolvable func(node string) bool) (end *preemptResult, ordered bool) {
	looked := p.engine.memory.Retries.Now()
	p.after = p.engine.committer.After(p.engine.store.Subjects.Order(p.kind(), string(p.uid)))
	switch {
	case p.mode == wire.ModeOff:
		return p.modeHeld(looked, endOff, "mode off"), false
	case minor.InGroup(p.pods[0]) && p.engine.control.HoldsGroups():
		return &preemptResult{kind: endGroupHeld, message: "groups.preemptors of the policy is hold: nothing is evicted for pods of a scheduling group"}, false
	case excluded != nil && excluded.kind != endNever:
		return p.modeHeld(looked, excluded.kind, excluded.message), false
	case excluded != nil:
		return excluded, false
	}
	p.engine.lookAtPlaces(p.engine.inflight.PlacesOf(p.uid))
	cycle := orders.FailedCycle{PodsOn: p.podsOn, Unresolvable: unresolvable, Beside: p.nominatedBeside()}
	why, orderID, node := p.engine.inflight.Refuse(p.uid, p.engine.clock.Now(), cycle)
	on := ""
	if node != "" {
		on = " on node " + node
	}
	switch why {
	case orders.RefusedInFlight:
		return &preemptResult{kind: endInFlight, message: fmt.Sprintf("its order %s%s is in flight", orderID, on)}, true
	case orders.RefusedLeaving:
		return &preemptResult{kind: endLeaving, node: node, message: fmt.Sprintf("victims of order %s%s are still leaving", orderID, on)}, true
	case orders.RefusedBeside:
		return &preemptResult{kind: endLeaving, node: node, message: fmt.Sprintf("order %s made room%s; %s", orderID, on, leavingBeside)}, true
	}
	return p.waitsForOthersVictims(unresolvable), false
}

// leavingBeside is why a preemptor waits whose room is there: kube-scheduler's filters count in the pods that are nominated beside it.
const leavingBeside = "victims of pods that are nominated beside it are still leaving"

// podsOn returns the pods that the cycle's snapshot has on a node, without a name on all: of a group's order. O(pods there).
func (p *preemptor) podsOn(name string) sets.Set[types.UID] {
	nodes, there := p.handle.SnapshotSharedLister().NodeInfos(), sets.New[types.UID]()
	var among []fwk.NodeInfo
	if node, err := nodes.Get(name); err == nil {
		among = append(among, node)
	} else if name == "" {
		among, _ = nodes.List()
	}
	for _, node := range among {
		for _, pod := range node.GetPods() {
			there.Insert(pod.GetPod().UID)
		}
	}
	return there
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
func (p *preemptor) waitsForOthersVictims(unresolvable func(node string) bool) *preemptResult {
	nodes, now, looked := p.handle.SnapshotSharedLister().NodeInfos(), p.engine.clock.Now(), map[string]bool{"": true}
	var until time.Time
	for _, pod := range p.pods {
		name := pod.Status.NominatedNodeName
		if looked[name] || unresolvable(name) {
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
func (p *preemptor) unreachable(err error) *preemptResult {
	_, probeAt := p.breaker.Current()
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
func (p *preemptor) unplanned(reply *wire.PlanReply) *preemptResult {
	refusal, message := reply.Refusal, messageOf(reply.Refusal)
	switch {
	case reply.Status != wire.StatusNotSynced:
		return nil
	case refusal != nil && heldBack[refusal.Reason] != "":
		p.engine.memory.Retries.PlanUnavailable(p.one(), time.Time{}, wire.Dependency{Kind: memory.KindOrders})
		return &preemptResult{kind: heldBack[refusal.Reason], message: message}
	case ask.Unaskable(refusal):
		return p.later(endUnaskable, "the planner cannot read the question: "+message)
	}
	return p.later(endNotSynced, "no plan: "+message)
}

// refused ends an attempt that the planner has refused. The preemptor is tried again at a time, not before long where that is zero, or
// when something that the refusal depends on changes; sooner where a cycle before has asked.
func (p *preemptor) refused(refusal *wire.Refusal, retryAt time.Time, message string, and ...wire.Dependency) *preemptResult {
	dependsOn := append(slices.Clone(refusal.DependsOn[:min(len(refusal.DependsOn), maxDependencies)]), and...)
	refuse := p.engine.memory.Retries.Refuse
	if p.before {
		refuse = p.engine.memory.Retries.RefuseLate
	}
	refuse(p.one(), p.asked, retryAt, dependsOn)
	return &preemptResult{kind: endRefused, message: message}
}

// retryAtOf is when a refusal has the planner asked again; zero where it does not say.
func retryAtOf(refusal *wire.Refusal) time.Time {
	if refusal.RetryAt == nil {
		return time.Time{}
	}
	return refusal.RetryAt.Time
}

// failedFor returns the nodes that failed verification for a pod, or for pods of its class, and have not changed since.
func (pl *MakeWay) failedFor(pod types.UID, class func() string) map[string]verify.Failure {
	failed := pl.failedBefore(class)
	maps.Copy(failed, pl.failedBefore(func() string { return string(pod) }))
	return failed
}

// failedBefore returns the nodes that failed verification for preemptors of a class, and have not changed since.
func (pl *MakeWay) failedBefore(class func() string) map[string]verify.Failure {
	memory, now := pl.engine.verified.failures, pl.engine.clock.Now()
	if memory.IsEmpty(now) {
		return map[string]verify.Failure{}
	}
	return memory.Of(now, class(), pl.generationOf)
}

// failedNow notes that a node failed verification for preemptors of a class, for the cycles to come.
func (pl *MakeWay) failedNow(class, node string, why verify.Failure) {
	if generation, ok := pl.generationOf(node); ok {
		pl.engine.verified.failures.Add(pl.engine.clock.Now(), class, node, why, generation)
	}
}

// generationOf is that of the scheduler's view of a node: any change of the node or its pods makes another.
func (pl *MakeWay) generationOf(node string) (generation int64, ok bool) {
	info, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return 0, false
	}
	return info.GetGeneration(), true
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
func (p *preemptor) observe(question func() (ask.Exchange, error)) *preemptResult {
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

// nominate marks who is tried as preempting, before the cycle ends and so before any other, and leaves the rest to a goroutine. There is
// nothing to order where terminating pods alone make the room, nor where no pod has to leave: nominations alone place a group then, since
// the scheduler looked at members one by one, and the plan at all of them. from: the plan that the candidate is of.
func (p *preemptor) nominate(chosen *verify.Candidate, from *wire.PlanReply) preemptResult {
	e, room := p.engine, "on node "+chosen.Node
	if p.group != nil {
		room = "for " + counted(len(chosen.Places), "member")
	}
	e.planner.Late.Forget(p.uid)
	for _, pod := range p.pods {
		e.memory.Reverted.Delete(pod.UID)
	}
	if leaving := chosen.TerminatingAlone(); len(leaving) > 0 {
		return p.awaits(leaving, chosen.Node, room)
	}
	if chosen.NeedsNothing() {
		p.ordered()
		p.span.End(nil, "result", endNominated)
		return preemptResult{kind: endNominated, message: fmt.Sprintf("there is room %s as planned, and no pod has to be evicted", room)}
	}
	now := e.clock.Now()
	order := &pendingOrder{preemptor: p, plan: from, id: wire.NewOrderID(now), at: now, chosen: chosen}
	p.ordered()
	e.planner.Commits.Allow() // where the last orders were not stored, this one probes
	e.inflight.Begin(order.entry())
	failpoints.At(failpoints.Nominated)
	e.startCommit(order)
	return preemptResult{kind: endNominated, node: chosen.Node, message: fmt.Sprintf("found a placement %s, preempting %s", room, counted(len(chosen.Victims), "pod"))}
}

// counted returns a number with its noun, which takes an s but for one.
func counted(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

// ordered notes that the pods are tried again for their nominations, and for nothing before.
func (p *preemptor) ordered() {
	for _, pod := range p.pods {
		p.engine.memory.Retries.Forget(pod.UID)
	}
}

// attempted notes how a cycle ended, so that the room in its queue that it was activated for goes to the next. What the cycle noted of a pod that was bound or deleted meanwhile came after the informer had
// told of that. A late answer that the cycle did not come to is of no use: what ended it says when the next one is.
func (p *preemptor) attempted(end preemptResult) {
	e := p.engine
	e.inflight.Cycled(p.uid)
	if !p.kept {
		e.planner.Late.Forget(p.uid)
	}
	for _, pod := range p.pods {
		if end.kind != endNominated && !p.kept { // else the order holds the place from now on, or it comes back as soon as its answer
			e.gate.Tried(pod.UID)
		}
	}
	e.pending(p.one())
}

package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// pendingOrder is a nomination whose order is not in the stream yet.
type pendingOrder struct {
	id         string
	requestID  string
	decisionID string
	offer      string  // what the plan allows a commit to name
	pod        *v1.Pod // of a group: one member, by which all are activated
	chosen     *verify.Candidate
	group      *orderedGroup // nil: the order is for the pod
	span       tracing.Span  // of the whole preemption; its outcome ends it
}

// entry is the order as the inflight state sees it.
func (o *pendingOrder) entry(now time.Time, notAfter time.Duration) *orders.Order {
	e := &orders.Order{
		OrderID:   o.id,
		Preemptor: orders.RefOf(o.pod),
		Node:      o.chosen.Node,
		Awaited:   map[types.UID]string{},
		Remaining: map[types.UID]time.Time{},
		CreatedAt: now,
		OpensAt:   o.opensAt(now, notAfter),
		Span:      o.span,
	}
	o.group.enter(e)
	for _, v := range o.chosen.Victims {
		e.Victims = append(e.Victims, v.Pod.UID)
		if !v.Apart {
			e.Remaining[v.Pod.UID] = time.Time{}
		}
	}
	for _, a := range o.chosen.Awaited {
		e.Awaits(a.Pod.UID, a.OrderID)
	}
	return e
}

// opensAt is when the gate opens at the latest, where it never becomes known that the order is stored.
func (o *pendingOrder) opensAt(now time.Time, notAfter time.Duration) time.Time {
	if o.group == nil {
		return now.Add(streams.StoredWithin + streams.AnsweredWithin + orders.GateSlack)
	}
	return now.Add(o.nominationWait() + notAfter + orders.GateSlack)
}

// kind, object and uid name the preemptor in the log: a pod, or a PodGroup.
func (o *pendingOrder) kind() string {
	if o.group != nil {
		return wire.KindGroup
	}
	return wire.KindPod
}

func (o *pendingOrder) object() klog.ObjectRef {
	if o.group != nil {
		return klog.KRef(o.group.Namespace, o.group.Name)
	}
	return klog.KObj(o.pod)
}

func (o *pendingOrder) uid() string {
	if o.group != nil {
		return o.group.UID
	}
	return string(o.pod.UID)
}

// nominationWait is how long the nominations may take to show in the API. The scheduler writes those of a group one after the other.
func (o *pendingOrder) nominationWait() time.Duration {
	if o.group == nil {
		return orders.NominationWait
	}
	return orders.NominationWait + time.Duration(len(o.group.members))*orders.MemberNominationWait
}

// by names the preemptor in the Event of a victim, by UID alone: tenants do not learn each other's names.
func (o *pendingOrder) by() string {
	if o.group != nil {
		return "pod group " + o.uid()
	}
	return "pod " + o.uid()
}

// handOver bounds how long a scheduling cycle waits for its commit to be on its way.
const handOver = 5 * time.Millisecond

// startCommit commits an order outside the scheduling cycle. The goroutine lives on after the cycle and
// ends with the engine's context. The commit of a pod is on its way to the planner when startCommit returns, unless that takes long.
func (e *engine) startCommit(order *pendingOrder) {
	onItsWay := make(chan struct{})
	written := sync.OnceFunc(func() { close(onItsWay) })
	if order.group == nil {
		defer func() {
			select {
			case <-onItsWay:
			case <-time.After(handOver):
			}
		}()
	}
	order.span.Tell("order_id", order.id, "request_id", order.requestID, "decision_id", order.decisionID, "node", order.chosen.Node, "victims", len(order.chosen.Victims))
	goroutines.GoRecovered(order.span.In(e.life), "commit", func(ctx context.Context) {
		defer written()
		start := e.clock.Now()
		commit := e.commit
		if order.group == nil {
			commit = func(ctx context.Context, order *pendingOrder) error { return e.commitPod(ctx, order, written) }
		}
		// Here and not where it happens: a write to the log can cost a scheduling cycle its turn on the processor.
		logger := klog.FromContext(ctx)
		logger.Info("preemptor_nominated", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid(), "node", order.chosen.Node, "order_id", order.id, "request_id", order.requestID, "decision_id", order.decisionID,
			"victims", len(order.chosen.Victims), "awaited", len(order.chosen.Awaited))
		err := commit(ctx, order)
		executed(operationCommit, err, e.clock.Since(start))
		if err == nil || ctx.Err() != nil {
			return
		}
		var unstored *streams.NotStoredError
		if errors.As(err, &unstored) {
			e.memory.Namespaces.Undecided(order.id)
			e.futile(ctx, order.id, memory.NotStored)
		} else {
			e.memory.OrderUndecided(order.id)
		}
		if errors.Is(err, orders.ErrPodGone) && order.group == nil {
			e.inflight.Abandon(order.id)
			logger.Info("order_dropped", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid(), "node", order.chosen.Node, "order_id", order.id, "reason", err.Error())
			return
		}
		logger.Error(err, "order_not_committed", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid(), "node", order.chosen.Node, "order_id", order.id)
		var lives *streams.OrderLivesError
		if errors.As(err, &lives) {
			e.supersededBy(ctx, order, lives.Stored)
			return
		}
		wait, nodesFault := time.Duration(0), false
		var void *voidError
		if errors.As(err, &void) {
			wait, nodesFault = orders.RevertWait, void.nodesFault()
		}
		e.inflight.Fail(order.id, err.Error(), e.clock.Now(), wait, func(w orders.Activation) { e.failed(w, nodesFault) })
	})
}

// supersededBy gives up an order for one that is alive in the stream: that one is adopted, and the
// nomination that it does not know of is deleted in memory. The pod's next cycle is refused for it.
func (e *engine) supersededBy(ctx context.Context, order *pendingOrder, stored natsbus.Record) {
	preemptor, places, _ := e.inflight.NominationsOf(order.id)
	e.inflight.Supersede(order.id)
	e.takeOrder(ctx, stored)
	w := orders.Activation{Pod: preemptor, OrderID: order.id, Node: order.chosen.Node, Revert: true, Reason: "another order for this pod is in the stream"}
	if order.group != nil {
		w.Members = places
	}
	e.applyActivation(ctx, w)
}

// commit waits for the nomination to show, deals with victims in memory, and writes the order. An
// error says that the order is certainly not in the stream, or that its time is over.
func (e *engine) commit(ctx context.Context, order *pendingOrder) error {
	// An evictor that failed before the nomination is in the API could not roll it back.
	waiting, cancel := context.WithTimeout(ctx, order.nominationWait())
	err := e.awaitNominations(waiting, order)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the nomination did not show in the API within %s", order.nominationWait())
	}
	if err != nil {
		return err
	}
	memoryOnly, err := e.awaitCountedOn(ctx, order.id)
	if err != nil {
		return err
	}
	message, inMemory, err := e.buildOrder(ctx, order)
	if err != nil {
		return err
	}
	message.Awaited = slices.DeleteFunc(message.Awaited, func(a wire.Awaited) bool { return memoryOnly[a.OrderID] })
	countsOnOrders := slices.ContainsFunc(message.Awaited, func(a wire.Awaited) bool { return a.OrderID != "" })
	if len(message.Victims)+len(message.NominationsToClear) == 0 && !countsOnOrders {
		// All may be dealt with in memory: then nothing is left for an evictor, and nothing to store.
		stay := e.preemptAllInMemory(ctx, order, inMemory)
		if len(stay) == 0 {
			e.memory.OrderUndecided(order.id)
			e.inflight.Remember(&wire.Outcome{OrderID: order.id, Result: wire.ResultSucceeded})
			e.succeeded(order.id, nil)
			return nil
		}
		inMemory = nil
		for _, v := range stay {
			message.Victims = append(message.Victims, e.wireVictim(v, order))
		}
	}
	failpoints.At(failpoints.BeforePublish)
	publishing, span := e.planner.Tracer.Begin(ctx, "publish")
	sequence, err := e.store.Publish(publishing, message)
	span.End(err)
	if err != nil {
		return err
	}
	// Pods are stopped in memory only now: while no order can be stored, each try would throw them back for nothing.
	for _, v := range e.preemptAllInMemory(ctx, order, inMemory) {
		e.inflight.Stays(order.id, v.Pod.UID)
	}
	if e.memory.Orders.Stored() {
		e.ordersCarried(ctx)
	}
	e.inflight.Commit(order.id, message.NotAfter.Add(orders.GateSlack))
	failpoints.At(failpoints.AfterCommit)
	klog.FromContext(ctx).Info("order_committed", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid(), "node", order.chosen.Node, "order_id", order.id, "request_id", order.requestID, "decision_id", order.decisionID, "victims", len(message.Victims),
		"awaited", len(message.Awaited), "nominations_to_clear", len(message.NominationsToClear), "sequence", sequence)
	// The outcome may have been read before the order was known to be stored.
	if outcome := e.inflight.Outcome(order.id); outcome != nil {
		e.applyOutcome(ctx, outcome)
	}
	return nil
}

// awaitCountedOn waits until the orders that this one counts on are stored: an evictor waits for their
// outcomes. Each is committed or given up within a bounded time, and so this ends too.
func (e *engine) awaitCountedOn(ctx context.Context, orderID string) (memoryOnly map[string]bool, err error) {
	for {
		ready, memoryOnly, err := e.inflight.CountsOnStored(orderID)
		if err != nil || ready {
			return memoryOnly, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		goroutines.Sleep(ctx, orders.CountedOnPoll)
	}
}

// buildOrder makes the message. Victims that wait in Permit or are being bound are left out, to be preempted in memory. One
// whose placement was taken back meanwhile is left out too: it is pending again, and no evictor's business.
func (e *engine) buildOrder(ctx context.Context, order *pendingOrder) (message *wire.EvictionOrder, inMemory []verify.Victim, err error) {
	clusterUID, err := e.clusterUID()
	if err != nil {
		return nil, nil, err
	}
	fenceCtx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	fence, err := e.leadership.Fence.Get(fenceCtx, e.store.Subjects.EpochsBucket)
	if err != nil {
		return nil, nil, streams.Unstored(fmt.Errorf("fencing epoch: %w", err))
	}
	now := e.clock.Now()
	message = &wire.EvictionOrder{
		Kind:       wire.KindGroup,
		OrderID:    order.id,
		ClusterUID: clusterUID,
		Fence:      fence,
		Writer:     wire.Source("scheduler", e.identity),
		CreatedAt:  wire.At(now),
		NotAfter:   wire.At(now.Add(e.args.NotAfter.Duration)),
		DecisionID: order.decisionID,
	}
	e.nameGroup(message, order.group)
	for _, v := range order.chosen.Victims {
		if v.Violating {
			message.PDBViolations++
		}
		switch {
		case e.placements.Pending(v.Pod.UID):
			continue
		case e.handle.GetWaitingPod(v.Pod.UID) != nil || minor.InPreBind(e.handle, v.Pod.UID):
			inMemory = append(inMemory, v)
			continue
		}
		message.Victims = append(message.Victims, e.wireVictim(v, order))
	}
	for _, a := range order.chosen.Awaited {
		message.Awaited = append(message.Awaited, a.OnTheWire())
	}
	for _, pod := range order.group.terminating {
		message.Awaited = append(message.Awaited, verify.Awaited{Pod: pod}.OnTheWire())
	}
	return message, inMemory, nil
}

// preemptAllInMemory stops victims that have not been bound, and returns those for which it is too late.
func (e *engine) preemptAllInMemory(ctx context.Context, order *pendingOrder, victims []verify.Victim) (stay []verify.Victim) {
	for _, v := range victims {
		if !e.preemptInMemory(ctx, order, v.Pod) && !e.placements.Pending(v.Pod.UID) {
			stay = append(stay, v)
		}
	}
	return stay
}

// preemptInMemory stops a victim that has not been bound. Preempt, not Reject: a rejected pod would
// count as unschedulable and wait for an event.
func (e *engine) preemptInMemory(ctx context.Context, order *pendingOrder, victim *v1.Pod) bool {
	where := ""
	if waiting := e.handle.GetWaitingPod(victim.UID); waiting != nil {
		if minor.PreemptWaiting(waiting, Name, "preempted by a pod of higher priority") {
			where = "Permit"
		}
	} else if minor.CancelInPreBind(e.handle, victim.UID, "preempted by "+Name) {
		where = "PreBind"
	}
	if where == "" {
		return false
	}
	klog.FromContext(ctx).Info("victim_preempted_in_memory", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid(), "node", order.chosen.Node, "order_id", order.id, "victim", klog.KObj(victim), "victim_uid", victim.UID, "phase", where)
	minor.Recorder(e.handle, klog.FromContext(ctx)).Eventf(victim, nil, v1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by %s on node %s (in kube-scheduler memory).", order.by(), victim.Spec.NodeName)
	return true
}

// nominationsToClear are the pods of lower priority nominated to the node. It locks the scheduling queue.
func (e *engine) nominationsToClear(priority int32, node string) []wire.NominationToClear {
	var refs []wire.NominationToClear
	for _, info := range e.handle.NominatedPodsForNode(node) {
		other := info.GetPod()
		// The nominator may only have the pod's name; its priority is the informer's to say.
		known := e.podOf(orders.RefOf(other))
		if known.Spec.Priority != nil && corev1helpers.PodPriority(known) < priority {
			refs = append(refs, wire.NominationToClear{Namespace: known.Namespace, Name: known.Name, UID: string(known.UID)})
		}
	}
	return refs
}

func (e *engine) wireVictim(v verify.Victim, order *pendingOrder) wire.Victim {
	node := order.chosen.Node
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if v.Pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *v.Pod.Spec.TerminationGracePeriodSeconds
	}
	if (v.Unit != "" || order.group != nil) && v.Pod.Spec.NodeName != "" {
		node = v.Pod.Spec.NodeName
	}
	return wire.Victim{
		Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: string(v.Pod.UID), Node: node,
		Priority: corev1helpers.PodPriority(v.Pod), GracePeriodSeconds: grace,
		Rule: v.Rule, PDBViolating: v.Violating, Assumed: e.placements.IsAssumed(v.Pod.UID), Unit: v.Unit, Closes: v.Closes,
	}
}

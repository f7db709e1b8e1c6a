package preempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// Bounds of committing one order.
const (
	publishTimeout  = time.Second // one attempt
	publishAttempts = 3
	readBackDelay   = time.Second
	countedOnPoll   = 10 * time.Millisecond
)

// orderLivesError says that the stream holds an order for the same preemptor that another process wrote.
type orderLivesError struct{ stored natsbus.Record }

func (*orderLivesError) Error() string { return "the stream holds another order for this pod" }

// pendingOrder is a nomination whose order is not in the stream yet.
type pendingOrder struct {
	id         string
	requestID  string
	decisionID string
	pod        *v1.Pod
	chosen     *verifiedCandidate
}

// entry is the order as the inflight state sees it.
func (o *pendingOrder) entry(now time.Time, notAfter time.Duration) *inFlightPreemption {
	e := &inFlightPreemption{
		orderID:   o.id,
		preemptor: refOf(o.pod),
		node:      o.chosen.node,
		awaited:   map[types.UID]string{},
		remaining: map[types.UID]time.Time{},
		createdAt: now,
		opensAt:   now.Add(nominationWait + notAfter + gateSlack),
	}
	for _, v := range o.chosen.victims {
		e.victims = append(e.victims, v.pod.UID)
		e.remaining[v.pod.UID] = time.Time{}
	}
	for _, a := range o.chosen.awaited {
		e.awaited[a.pod.UID] = a.orderID
		e.remaining[a.pod.UID] = time.Time{}
	}
	return e
}

// startCommit commits an order outside the scheduling cycle. The goroutine lives on after the cycle and
// ends with the engine's context.
func (e *engine) startCommit(order *pendingOrder) {
	goroutines.GoRecovered(e.life, "commit", func(ctx context.Context) {
		start := e.clock.Now()
		// Here and not where it happens: a write to the log can cost a scheduling cycle its turn on the processor.
		klog.FromContext(ctx).Info("preemptor_nominated", "pod", klog.KObj(order.pod), "pod_uid", order.pod.UID, "node", order.chosen.node, "order_id", order.id,
			"request_id", order.requestID, "decision_id", order.decisionID, "victims", len(order.chosen.victims), "awaited", len(order.chosen.awaited))
		err := e.commit(ctx, order)
		executed(operationCommit, err, e.clock.Since(start))
		if err == nil || ctx.Err() != nil {
			return
		}
		logger := klog.FromContext(ctx)
		var unstored *notStoredError
		if errors.As(err, &unstored) {
			e.perNamespace.undecided(order.id)
			e.futile(ctx, order.id, notStored)
		} else {
			e.orderUndecided(order.id)
		}
		if errors.Is(err, errPodGone) {
			e.inflight.abandon(order.id)
			logger.Info("order_dropped", "pod", klog.KObj(order.pod), "pod_uid", order.pod.UID, "order_id", order.id, "reason", err.Error())
			return
		}
		logger.Error(err, "order_not_committed", "pod", klog.KObj(order.pod), "pod_uid", order.pod.UID, "order_id", order.id, "node", order.chosen.node)
		var lives *orderLivesError
		if errors.As(err, &lives) {
			e.supersededBy(ctx, order, lives.stored)
			return
		}
		if _, ok := e.inflight.fail(order.id, err.Error(), e.clock.Now(), 0); ok {
			e.failed(refOf(order.pod), order.chosen.node, false)
		}
	})
}

// supersededBy gives up an order for one that is alive in the stream: that one is adopted, and the
// nomination that it does not know of is deleted in memory. The pod's next cycle is refused for it.
func (e *engine) supersededBy(ctx context.Context, order *pendingOrder, stored natsbus.Record) {
	e.inflight.supersede(order.id)
	e.takeOrder(ctx, stored)
	e.applyActivation(ctx, activation{pod: refOf(order.pod), orderID: order.id, node: order.chosen.node, revert: true, reason: "another order for this pod is in the stream"})
}

// commit waits for the nomination to show, deals with victims in memory, and writes the order. An
// error says that the order is certainly not in the stream, or that its time is over.
func (e *engine) commit(ctx context.Context, order *pendingOrder) error {
	// An evictor that failed before the nomination is in the API could not roll it back.
	waiting, cancel := context.WithTimeout(ctx, nominationWait)
	err := e.placements.awaitNomination(waiting, order.pod.UID, order.chosen.node)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the nomination did not show in the API within %s", nominationWait)
	}
	if err != nil {
		return err
	}
	// The pod is back in the queue. Activated now it is gated at once, so that from here on the queue
	// asks this plugin's hint when a victim leaves the cache.
	e.activate(ctx, order.pod)

	memoryOnly, err := e.awaitCountedOn(ctx, order.id)
	if err != nil {
		return err
	}
	message, inMemory, err := e.buildOrder(ctx, order)
	if err != nil {
		return err
	}
	message.Awaited = slices.DeleteFunc(message.Awaited, func(a wire.Awaited) bool { return memoryOnly[a.OrderID] })
	if len(message.Victims)+len(message.Awaited)+len(message.NominationsToClear) == 0 {
		// All may be dealt with in memory: then nothing is left for an evictor, and nothing to store.
		stay := e.preemptAllInMemory(ctx, order, inMemory)
		if len(stay) == 0 {
			e.orderUndecided(order.id)
			e.inflight.remember(&wire.Outcome{OrderID: order.id, Result: wire.ResultSucceeded})
			e.succeeded(order.id, nil)
			return nil
		}
		inMemory = nil
		for _, v := range stay {
			message.Victims = append(message.Victims, wireVictim(v, order.chosen.node, e.placements.isAssumed(v.pod.UID)))
		}
	}
	failpoint(failBeforePublish)
	sequence, err := e.publish(ctx, message)
	if err != nil {
		return err
	}
	// Pods are stopped in memory only now: while no order can be stored, each try would throw them back for nothing.
	for _, v := range e.preemptAllInMemory(ctx, order, inMemory) {
		e.inflight.stays(order.id, v.pod.UID)
	}
	if e.orders.stored() {
		e.ordersCarried(ctx)
	}
	e.inflight.commit(order.id, message.NotAfter.Add(gateSlack))
	failpoint(failAfterCommit)
	klog.FromContext(ctx).Info("order_committed", "pod", klog.KObj(order.pod), "pod_uid", order.pod.UID, "order_id", order.id,
		"request_id", order.requestID, "decision_id", order.decisionID, "node", order.chosen.node, "victims", len(message.Victims),
		"awaited", len(message.Awaited), "nominations_to_clear", len(message.NominationsToClear), "sequence", sequence)
	// The outcome may have been read before the order was known to be stored.
	if outcome := e.inflight.outcome(order.id); outcome != nil {
		e.applyOutcome(ctx, outcome)
	}
	return nil
}

// awaitCountedOn waits until the orders that this one counts on are stored: an evictor waits for their
// outcomes. Each is committed or given up within a bounded time, and so this ends too.
func (e *engine) awaitCountedOn(ctx context.Context, orderID string) (memoryOnly map[string]bool, err error) {
	for {
		ready, memoryOnly, err := e.inflight.countsOnStored(orderID)
		if err != nil || ready {
			return memoryOnly, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		goroutines.Sleep(ctx, countedOnPoll)
	}
}

// buildOrder makes the message. Victims that wait in Permit or are being bound are left out, to be preempted in memory. One
// whose placement was taken back meanwhile is left out too: it is pending again, and no evictor's business.
func (e *engine) buildOrder(ctx context.Context, order *pendingOrder) (message *wire.EvictionOrder, inMemory []victim, err error) {
	clusterUID, err := e.clusterUID()
	if err != nil {
		return nil, nil, err
	}
	fenceCtx, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	fence, err := e.fence.get(fenceCtx, e.subjects.EpochsBucket)
	if err != nil {
		return nil, nil, unstored(fmt.Errorf("fencing epoch: %w", err))
	}
	now := e.clock.Now()
	priority := corev1helpers.PodPriority(order.pod)
	message = &wire.EvictionOrder{
		OrderID:    order.id,
		Kind:       "pod",
		ClusterUID: clusterUID,
		Fence:      fence,
		Writer:     wire.Source("scheduler", e.identity),
		CreatedAt:  wire.At(now),
		NotAfter:   wire.At(now.Add(e.args.NotAfter.Duration)),
		Preemptor: &wire.Preemptor{
			Namespace: order.pod.Namespace, Name: order.pod.Name, UID: string(order.pod.UID),
			Priority: priority, SchedulerName: order.pod.Spec.SchedulerName,
		},
		Node:               order.chosen.node,
		NodeUID:            string(order.chosen.nodeUID),
		DecisionID:         order.decisionID,
		NominationsToClear: e.nominationsToClear(order.pod, priority, order.chosen.node),
	}
	for _, v := range order.chosen.victims {
		if v.violating {
			message.PDBViolations++
		}
		switch {
		case e.placements.pending(v.pod.UID):
			continue
		case e.handle.GetWaitingPod(v.pod.UID) != nil || minor.InPreBind(e.handle, v.pod.UID):
			inMemory = append(inMemory, v)
			continue
		}
		message.Victims = append(message.Victims, wireVictim(v, order.chosen.node, e.placements.isAssumed(v.pod.UID)))
	}
	for _, a := range order.chosen.awaited {
		message.Awaited = append(message.Awaited, wire.Awaited{UID: string(a.pod.UID), OrderID: a.orderID})
	}
	return message, inMemory, nil
}

// preemptAllInMemory stops victims that have not been bound, and returns those for which it is too late.
func (e *engine) preemptAllInMemory(ctx context.Context, order *pendingOrder, victims []victim) (stay []victim) {
	for _, v := range victims {
		if !e.preemptInMemory(ctx, order, v.pod) && !e.placements.pending(v.pod.UID) {
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
	klog.FromContext(ctx).Info("victim_preempted_in_memory", "order_id", order.id, "pod", klog.KObj(order.pod), "victim", klog.KObj(victim), "victim_uid", victim.UID, "phase", where)
	minor.Recorder(e.handle, klog.FromContext(ctx)).Eventf(victim, nil, v1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by pod %s on node %s (in kube-scheduler memory).", order.pod.UID, order.chosen.node)
	return true
}

// nominationsToClear are the pods of lower priority nominated to the node. It locks the scheduling queue.
func (e *engine) nominationsToClear(pod *v1.Pod, priority int32, node string) []wire.PodRef {
	var refs []wire.PodRef
	for _, info := range e.handle.NominatedPodsForNode(node) {
		other := info.GetPod()
		if other.UID == pod.UID {
			continue
		}
		// The nominator may only have the pod's name; its priority is the informer's to say.
		known := e.podOf(refOf(other))
		if known.Spec.Priority != nil && corev1helpers.PodPriority(known) < priority {
			refs = append(refs, refOf(known))
		}
	}
	return refs
}

// publish stores the order, as the one live order of its preemptor. Where it cannot be known whether it
// is stored, it is repeated with the same id and expected sequence, and then read back until that is
// known or the order's time is over.
func (e *engine) publish(ctx context.Context, order *wire.EvictionOrder) (uint64, error) {
	subject := e.subjects.PodOrder(order.Preemptor.UID)
	data, err := wire.WrapOrder(order, order.Writer, func(envelope *wire.Envelope) error { return e.signatures.sign(envelope, subject) })
	if err != nil {
		return 0, unstored(err)
	}
	expected, err := e.expectedSequence(ctx, subject)
	if err != nil {
		return 0, err
	}
	if err := e.inflight.publishing(order.OrderID, data); err != nil {
		return 0, err
	}
	ambiguous := false
	for range publishAttempts {
		attempt, cancel := context.WithTimeout(ctx, publishTimeout)
		sequence, err := e.bus.Publish(attempt, subject, order.OrderID, expected, data)
		cancel()
		switch {
		case err == nil:
			failpoint(failAfterPublish)
			return sequence, nil
		case errors.Is(err, natsbus.ErrNotSent) && !ambiguous:
			return 0, unstored(err)
		case errors.Is(err, natsbus.ErrConflict):
			// Another writer was first, or an earlier attempt of this one has arrived.
			return e.readBack(ctx, order, subject)
		case errors.Is(err, natsbus.ErrNotSent):
			// An earlier attempt may still be agreed on among the servers: only time tells.
			goroutines.Sleep(ctx, readBackDelay)
		}
		ambiguous = true
		klog.FromContext(ctx).Info("order_publish_ambiguous", "order_id", order.OrderID, "reason", err.Error())
	}
	return e.readBack(ctx, order, subject)
}

// expectedSequence is the sequence of the subject's last order, 0 where there is none. It refuses to
// supersede an order that is alive.
func (e *engine) expectedSequence(ctx context.Context, subject string) (uint64, error) {
	call, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	last, found, err := e.records.Last(call, e.subjects.OrdersStream, subject)
	if err != nil {
		return 0, unstored(err)
	}
	if !found {
		return 0, nil
	}
	previous, err := e.unwrapOrder(last.Data, subject)
	if err != nil {
		// No evictor can carry out what it cannot read, nor does what is not signed.
		return last.Sequence, nil
	}
	if previous.Preemptor == nil || e.subjects.PodOrder(previous.Preemptor.UID) != subject {
		// Evictors put an order on another's subject aside, without an outcome.
		return last.Sequence, nil
	}
	if !e.clock.Now().Before(previous.NotAfter.Add(gateSlack)) || e.inflight.outcome(previous.OrderID) != nil {
		return last.Sequence, nil
	}
	_, done, err := e.lastOutcome(call, previous.OrderID)
	if err != nil && done {
		return last.Sequence, nil // of a version that this process does not know
	}
	if err != nil {
		return 0, unstored(err)
	}
	if !done {
		return 0, &orderLivesError{stored: last}
	}
	return last.Sequence, nil
}

// readBack finds out whether the order is stored. It asks until it gets an answer, or until the order's
// time is over, when it does not matter any more.
func (e *engine) readBack(ctx context.Context, order *wire.EvictionOrder, subject string) (uint64, error) {
	for {
		call, cancel := context.WithTimeout(ctx, natsCallTimeout)
		last, found, err := e.records.Last(call, e.subjects.OrdersStream, subject)
		cancel()
		if err == nil {
			if !found {
				return 0, unstored(errors.New("it is not in the stream"))
			}
			stored, err := e.unwrapOrder(last.Data, subject)
			switch {
			case err == nil && stored.OrderID == order.OrderID:
				return last.Sequence, nil
			case unverified(err):
				return 0, unstored(err)
			}
			return 0, &orderLivesError{stored: last}
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if !e.clock.Now().Before(order.NotAfter.Add(gateSlack)) {
			return 0, unstored(fmt.Errorf("it cannot be known whether it was stored: %w", err))
		}
		goroutines.Sleep(ctx, readBackDelay)
	}
}

func wireVictim(v victim, node string, assumed bool) wire.Victim {
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if v.pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *v.pod.Spec.TerminationGracePeriodSeconds
	}
	if v.unit != "" && v.pod.Spec.NodeName != "" {
		node = v.pod.Spec.NodeName
	}
	return wire.Victim{
		Namespace: v.pod.Namespace, Name: v.pod.Name, UID: string(v.pod.UID), Node: node,
		Priority: corev1helpers.PodPriority(v.pod), GracePeriodSeconds: grace,
		Rule: v.rule, PDBViolating: v.violating, Assumed: assumed, Unit: v.unit,
	}
}

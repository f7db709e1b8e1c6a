package plugin

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/wire"
)

const (
	// activationPause is how long after an activation the next one comes of who has come to no cycle since: kube-scheduler 1.37 forgets
	// that of a pod group while the group's cycle runs (scheduling_queue.go, Activate).
	activationPause = time.Second
	// followSince is how far back the streams are read at the start: longer than any order lives.
	followSince = maxNotAfter + time.Minute
	// maxNotAfterAhead is how far ahead an order's notAfter may lie: further, it is no scheduler's.
	maxNotAfterAhead = maxNotAfter + time.Minute
)

// reasonFutureEpoch is the reason of an outcome that the plugin tells apart.
const reasonFutureEpoch = "future-epoch"

// follow begins to read ORDERS and OUTCOMES, until the context ends. Every replica does, so that the next leader
// knows the live orders. The two are read independently and in any order.
func (e *engine) follow(ctx context.Context) {
	since := e.clock.Now().Add(-followSince)
	goroutines.KeepRunning(ctx, "follow", func(ctx context.Context) {
		e.store.Records.Follow(ctx, e.store.Subjects.OutcomesStream(), e.store.Subjects.Outcomes(), since, func(r natsbus.Record) { e.takeOutcome(ctx, r) })
	})
	goroutines.KeepRunning(ctx, "follow", func(ctx context.Context) {
		e.store.Records.Follow(ctx, e.store.Subjects.OrdersStream(), e.store.Subjects.Orders(), since, func(r natsbus.Record) { e.takeOrder(ctx, r) })
	})
}

// takeOrder adopts an order that this process did not write, where it is alive and its pod is pending, or it makes room for no pod: plans may
// count on its victims.
func (e *engine) takeOrder(ctx context.Context, r natsbus.Record) {
	message, err := e.store.Signatures.UnwrapOrder(r.Data, r.Subject)
	if err != nil {
		r.Ignore(ctx, err)
		return
	}
	if r.Subject != e.store.Subjects.OfOrder(message) {
		// One live order a preemptor holds by the subject alone; evictors put this one aside.
		r.Ignore(ctx, &wire.MisplacedError{Reason: wire.ReasonWrongSubject, Detail: "an order of kind " + message.Kind})
		return
	}
	if clusterUID, err := e.control.ClusterUID(); err != nil || clusterUID != message.ClusterUID {
		return
	}
	order := orders.FromMessage(message, message.NotAfter.Add(orders.GateSlack))
	pod, known := e.waitingFor(order), e.inflight.HasOrder(order.OrderID)
	if pod != nil || known || e.placements.Knows(types.UID(order.Preemptor.UID)) {
		e.committer.Read(r.Subject, r.Sequence)
	}
	e.committer.Heard(message)
	if message.Void != nil || known {
		return
	}
	now := e.clock.Now()
	if message.NotAfter.After(now.Add(maxNotAfterAhead)) {
		r.Ignore(ctx, &wire.MisplacedError{Reason: wire.ReasonNotAfter, Detail: "notAfter " + message.NotAfter.Format(time.RFC3339)})
		return
	}
	outcome := e.inflight.Outcome(order.OrderID)
	if outcome != nil {
		order.OpensAt = orders.LeavingUntil(outcome, orders.Earlier(outcome.FinishedAt.Time, now))
	}
	if (pod == nil && len(order.Places()) > 0) || (outcome != nil && outcome.Result != wire.ResultSucceeded) || !e.inflight.Adopt(order, now) {
		return
	}
	klog.FromContext(ctx).Info("order_adopted", "kind", message.Kind, "pod", klog.KObj(pod), "pod_uid", order.Preemptor.UID, "order_id", order.OrderID, "node", order.Node)
	if pod != nil {
		// Its place in its queue is held from now on, so that the queue gate, which may have held it, activates it no more.
		e.activate(ctx, e.pending(orders.RefOf(pod)))
	}
	if outcome = e.inflight.Outcome(order.OrderID); outcome != nil { // it may have come since
		e.applyOutcome(ctx, outcome)
	}
}

// waitingFor is a pod that an order makes room for, of a group one of the members; nil where none waits for a node.
func (e *engine) waitingFor(order *orders.Order) *v1.Pod {
	for _, place := range order.Places() {
		pod := e.current(orders.RefOfPlacement(place))
		if pod != nil && e.placements.Knows(pod.UID) && pod.Spec.NodeName == "" {
			return pod
		}
	}
	return nil
}

// takeOutcome remembers an outcome and applies it.
func (e *engine) takeOutcome(ctx context.Context, r natsbus.Record) {
	e.planner.Seen.TakeOutcome(r)
	outcome, err := e.store.Signatures.UnwrapOutcome(r.Data, r.Subject)
	if err != nil {
		r.Ignore(ctx, err)
		return
	}
	if r.Subject != e.store.Subjects.Outcome(outcome.OrderID) {
		r.Ignore(ctx, &wire.MisplacedError{Reason: wire.ReasonWrongSubject, Detail: "an outcome of " + outcome.OrderID})
		return
	}
	if clusterUID, err := e.control.ClusterUID(); err == nil && clusterUID != outcome.ClusterUID {
		r.Ignore(ctx, &wire.MisplacedError{Reason: wire.ReasonOtherCluster, Detail: "cluster " + outcome.ClusterUID})
		return
	}
	failpoints.At(failpoints.OnOutcome)
	e.inflight.Remember(outcome)
	namespace := ""
	if order := e.inflight.ByID(outcome.OrderID); order != nil {
		namespace = order.Preemptor.Namespace
	}
	e.applyOutcome(ctx, outcome)
	// The stream is read from its past after a start.
	e.memory.Retries.OrderEnded(namespace, e.clock.Since(outcome.FinishedAt.Time) < orders.AnswerFresh)
}

// applyOutcome does what an order's end asks for. It may be called more than once for one outcome.
func (e *engine) applyOutcome(ctx context.Context, outcome *wire.Outcome) {
	if outcome.Result == wire.ResultSucceeded {
		e.succeeded(outcome.OrderID, outcome)
		return
	}
	if outcome.Reason == reasonFutureEpoch {
		e.leadership.Fence.Forget(outcome.Epoch) // before the pod's next order
	}
	failed := e.inflight.Fail(outcome.OrderID, "outcome "+outcome.Result+": "+outcome.Reason, e.clock.Now(), orders.RevertWait)
	if failed == nil {
		return
	}
	if failed.Own {
		executed(operationOrder, errors.New(outcome.Result), e.clock.Since(failed.CreatedAt))
	}
	klog.FromContext(ctx).Info("order_failed", "pod_uid", failed.Preemptor.UID, "order_id", outcome.OrderID, "node", failed.Node, "result", outcome.Result, "reason", outcome.Reason, "message", outcome.Message)
	e.lookAtPlaces(failed.Places())
}

// lookAtPlaces takes in where the API shows the pods of an order nominated: no event tells that a nomination has not shown for long, and it
// may have changed before the order's end was known.
func (e *engine) lookAtPlaces(places []wire.Placement) {
	for _, place := range places {
		ref := orders.RefOfPlacement(place)
		if pod := e.pending(ref); pod != nil {
			e.inflight.NominatedTo(pod.UID, pod.Status.NominatedNodeName, e.clock.Now())
		}
	}
}

// succeeded notes that an order's victims are deleted or leaving; outcome is nil where all were dealt with in memory.
func (e *engine) succeeded(orderID string, outcome *wire.Outcome) {
	now := e.clock.Now()
	took, own := e.inflight.Succeed(orderID, now, orders.LeavingUntil(outcome, now), func(uid types.UID) bool {
		return !e.placements.Knows(uid) || e.placements.Pending(uid)
	})
	if own && outcome != nil {
		executed(operationOrder, nil, took)
	}
	places := e.inflight.ByID(orderID).Places()
	e.lookAtPlaces(places)
	for _, place := range places {
		if _, err := e.cluster.nodes.Get(place.Node); apierrors.IsNotFound(err) {
			e.inflight.NodeDeleted(place.Node)
		}
	}
}

// runActivator does what the state of the orders in flight asks for. It is the only goroutine that opens
// gates, so each pod is activated once. Activate and the nominator lock the scheduling queue, which holds its
// lock while it calls PreEnqueue and queueing hints: those must only ever leave a note, for this
// goroutine to find.
func (e *engine) runActivator(ctx context.Context) {
	for ctx.Err() == nil {
		activations, next := e.inflight.Due(e.clock.Now())
		for _, w := range activations {
			e.applyActivation(ctx, w)
		}
		goroutines.Wait(ctx, e.clock, next, e.inflight.Changed)
	}
}

// applyActivation lets a pod be tried again. Its gate is open, or opens as soon as its nomination is deleted. It
// must not be called under any lock. Nominations of a group that the API still shows are cleared there first, on a goroutine of their
// own: a cycle in between would begin with them. A standby clears none: by its clock, or by what it has read, the order may seem over
// that the leader carries on.
func (e *engine) applyActivation(ctx context.Context, w orders.Activation) {
	defer goroutines.RecoverPanic(ctx, "waker", func() { e.activateAgain(w) })
	failpoints.At(failpoints.BeforeActivate)
	if w.Unanswered {
		executed(operationOrder, errors.New("no outcome"), e.clock.Since(w.CreatedAt))
	}
	if w.Revert {
		if shown := e.revert(w); len(shown) > 0 {
			goroutines.GoRecovered(e.life, "clear", func(ctx context.Context) {
				defer goroutines.RecoverPanic(ctx, "waker", func() { e.activateAgain(w) })
				if e.leadership.Now(ctx) {
					e.clearNominations(ctx, shown)
				}
				e.release(ctx, w)
			})
			return
		}
	}
	e.release(ctx, w)
}

// activateAgain has an activation that panicked done again after a pause.
func (e *engine) activateAgain(w orders.Activation) {
	at := e.clock.Now().Add(goroutines.RestartPause)
	e.inflight.ActivationFailed(w.OrderID, at)
	for _, place := range w.Places() {
		e.memory.Retries.TryAt(orders.RefOfPlacement(place), at)
	}
}

// release opens the gate of an order that was reverted, and lets its pods be tried again.
func (e *engine) release(ctx context.Context, w orders.Activation) {
	logger := klog.FromContext(ctx)
	if w.Revert {
		e.inflight.Finish(w.OrderID)
		logger.Info("preemption_reverted", "pod", klog.KRef(w.Preemptor.Namespace, w.Preemptor.Name), "pod_uid", w.Preemptor.UID, "order_id", w.OrderID, "node", w.Node, "reason", w.Reason)
	} else {
		if w.Waited > 0 {
			orderToLastVictimGone.Observe(w.Waited.Seconds())
		}
		logger.Info("preemptor_released", "pod", klog.KRef(w.Preemptor.Namespace, w.Preemptor.Name), "pod_uid", w.Preemptor.UID, "order_id", w.OrderID, "node", w.Node, "reason", w.Reason, "seconds", w.Waited.Seconds())
	}
	var pods []*v1.Pod
	for i, place := range w.Places() {
		ref := orders.RefOfPlacement(place)
		if i == 0 {
			e.memory.Retries.TryAt(ref, e.clock.Now().Add(activationPause))
		}
		pods = append(pods, e.pending(ref))
	}
	e.activate(ctx, pods...)
}

// revert deletes the nominations of an order in memory, and returns the members of a group that the API still shows nominated by it:
// no evictor takes that back there, or none has. For a pod the next cycle does.
func (e *engine) revert(w orders.Activation) (shown []*v1.Pod) {
	for _, place := range w.Places() {
		pod := e.podOf(orders.RefOfPlacement(place))
		if w.Unstored || pod.Status.NominatedNodeName == place.Node {
			if w.Node != "" {
				e.memory.Reverted.Store(pod.UID, place.Node)
			} else if pod.Status.NominatedNodeName == place.Node {
				shown = append(shown, pod)
			}
			e.pending(orders.RefOf(pod)) // it may have gone meanwhile
		}
		e.handle.DeleteNominatedPodIfExists(pod)
	}
	return shown
}

// raiseEpoch counts the start of a scheduler without a Lease: what an earlier one commits after it is refused.
func (e *engine) raiseEpoch(ctx context.Context) {
	for e.args.Lease.Name == "" && ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, streams.CallTimeout)
		_, err := e.leadership.Fence.Get(call, e.store.Subjects.EpochsBucket())
		cancel()
		if err == nil {
			return
		}
		goroutines.Sleep(ctx, streams.RetryDelay)
	}
}

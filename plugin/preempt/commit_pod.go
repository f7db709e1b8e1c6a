package preempt

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// Reasons of voids that the plugin tells apart.
const (
	voidNothing         = "nothing-to-order" // the pods whose room is wanted leave anyway
	voidSuperseded      = "superseded"       // another message of the subject was first
	voidPreemptorGone   = "preemptor-gone"
	voidPreemptorBound  = "preemptor-bound"
	voidUnitIncomplete  = "unit-incomplete"
	voidNotAcknowledged = "not-acknowledged" // by the stream
	voidNotTaken        = "publish-refused"  // by the stream
)

// voidError says that the planner has stored no order, and never will under this id.
type voidError struct{ wire.Void }

func (v *voidError) Error() string { return v.Reason + ": " + v.Message }

// nodesFault reports whether the same plan would come to nothing again.
func (v *voidError) nodesFault() bool {
	return v.Reason == reasonVictimSpared || v.Reason == voidUnitIncomplete
}

// commitPod has the planner store the order of a pod, and takes in what it answers. An error says that the order is not stored, as far as can
// be known.
func (e *engine) commitPod(ctx context.Context, order *pendingOrder, written func()) error {
	commit, inMemory, err := e.commitOf(ctx, order)
	if err != nil {
		return err
	}
	failpoints.At(failpoints.BeforePublish)
	asking, span := e.planner.Tracer.Begin(ctx, "commit")
	subject := e.store.Subjects.PodOrder(order.uid())
	reply, err := e.committer.Ask(asking, subject, e.store.Subjects.Commit, commit, func() error { return e.inflight.Asking(order.id) }, written)
	span.End(err)
	if err != nil {
		return err
	}
	failpoints.At(failpoints.AfterPublish)
	if reply.Order == nil {
		return e.voided(ctx, order, *reply.Void, inMemory)
	}
	if e.memory.Orders.Stored() {
		e.ordersCarried(ctx)
	}
	stored := reply.Order
	e.inflight.Stored(stored, stored.NotAfter.Add(orders.GateSlack))
	// Pods are stopped in memory only now: while no order can be stored, each try would throw them back for nothing.
	// The order does not wait for those for which it is too late: the next cycle plans for them.
	for _, v := range e.preemptAllInMemory(ctx, order, inMemory) {
		e.inflight.Stays(order.id, v.Pod.UID)
	}
	failpoints.At(failpoints.AfterCommit)
	klog.FromContext(ctx).Info("order_committed", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid(), "node", order.chosen.Node, "order_id", order.id, "request_id", order.requestID, "decision_id", order.decisionID,
		"victims", len(stored.Victims), "awaited", len(stored.Awaited), "nominations_to_clear", len(stored.NominationsToClear))
	// The outcome may have been read before the order was known to be stored.
	if outcome := e.inflight.Outcome(order.id); outcome != nil {
		e.applyOutcome(ctx, outcome)
	}
	return nil
}

// commitOf is the question to store an order. Victims that wait in Permit or are being bound are named apart, to be stopped in memory. One
// whose placement was taken back meanwhile is left out: it is pending again.
func (e *engine) commitOf(ctx context.Context, order *pendingOrder) (commit *wire.CommitRequest, inMemory []verify.Victim, err error) {
	clusterUID, err := e.clusterUID()
	if err != nil {
		return nil, nil, err
	}
	reading, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	fence, err := e.leadership.Fence.Get(reading, e.store.Subjects.EpochsBucket)
	if err != nil {
		return nil, nil, streams.Unstored(fmt.Errorf("fencing epoch: %w", err))
	}
	commit = &wire.CommitRequest{
		APIVersion: wire.APIVersion,
		OrderID:    order.id,
		ClusterUID: clusterUID,
		Bridge:     wire.Source("scheduler", e.identity),
		Fence:      fence,
		Offer:      order.offer,
		Preemptor:  orders.RefOf(order.pod),
		Node:       order.chosen.Node,
		NodeUID:    string(order.chosen.NodeUID),
		StoreBy:    wire.At(e.clock.Now().Add(streams.StoredWithin)),

		LastsSeconds: int64(e.args.NotAfter.Seconds()),
	}
	for _, v := range order.chosen.Victims {
		switch {
		case e.placements.Pending(v.Pod.UID):
		case e.isInMemory(v.Pod):
			inMemory = append(inMemory, v)
			commit.InMemory = append(commit.InMemory, string(v.Pod.UID))
		default:
			commit.Victims = append(commit.Victims, string(v.Pod.UID))
		}
	}
	for _, a := range order.chosen.Awaited {
		if !e.placements.Pending(a.Pod.UID) {
			commit.Awaited = append(commit.Awaited, a.OnTheWire())
		}
	}
	return commit, inMemory, nil
}

// isInMemory reports whether a pod waits in Permit or PreBind.
func (e *engine) isInMemory(pod *v1.Pod) bool {
	return e.handle.GetWaitingPod(pod.UID) != nil || minor.InPreBind(e.handle, pod.UID)
}

// voided takes in that no order is stored: nil where none is needed, else an error. What the planner has stored in its place is read, for the
// pod's next order to be stored behind.
func (e *engine) voided(ctx context.Context, order *pendingOrder, void wire.Void, inMemory []verify.Victim) error {
	call, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	subject := e.store.Subjects.PodOrder(order.uid())
	last, found, err := e.store.Records.Last(call, e.store.Subjects.OrdersStream, subject)
	found = found && err == nil
	if found {
		e.committer.Read(subject, last.Sequence)
	}
	switch void.Reason {
	case voidNothing:
		if stay := e.preemptAllInMemory(ctx, order, inMemory); len(stay) > 0 {
			return &voidError{wire.Void{Reason: "victim-bound", Message: "a victim was being bound, and could not be stopped in memory"}}
		}
		e.memory.OrderUndecided(order.id)
		e.inflight.Remember(&wire.Outcome{OrderID: order.id, Result: wire.ResultSucceeded})
		e.succeeded(order.id, nil)
		return nil
	case voidSuperseded:
		if found {
			return &streams.OrderLivesError{Stored: last}
		}
	case voidPreemptorGone, voidPreemptorBound:
		if e.pending(orders.RefOf(order.pod)) == nil {
			return orders.ErrPodGone
		}
	case voidNotAcknowledged, voidNotTaken:
		return streams.Unstored(&voidError{void})
	}
	return &voidError{void}
}

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/failpoints"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// pendingOrder is a nomination, of a pod or of a group's members, whose order is not in the stream yet.
type pendingOrder struct {
	*preemptor                 // whose span is of the whole preemption: the outcome ends it
	plan       *wire.PlanReply // whose offer is what the commit may name
	id         string
	at         time.Time // of the nomination, from which all of its times are counted: the process may be stopped before it asks
	chosen     *verify.Candidate
}

// storeBy is when the order may be stored at the latest.
func (o *pendingOrder) storeBy() time.Time {
	return o.at.Add(orders.StoredWithin(len(o.chosen.Places)))
}

// entry is the order as the inflight state sees it. The gate opens by itself where it never becomes known that the order is stored.
func (o *pendingOrder) entry() *orders.Order {
	e := &orders.Order{
		OrderID:   o.id,
		Preemptor: o.ref(),
		Node:      o.chosen.Node,
		Removal:   orders.Removal{Awaited: map[types.UID]string{}, Remaining: map[types.UID]time.Time{}},
		CreatedAt: o.at,
		OpensAt:   o.storeBy().Add(orders.AnsweredWithin + orders.GateSlack),
		Span:      o.span,
	}
	e.Enter(o.chosen.Places...)
	for _, v := range o.chosen.Victims {
		e.Victims = append(e.Victims, v.Pod.UID)
		e.Remaining[v.Pod.UID] = time.Time{}
	}
	for _, a := range o.chosen.Awaited {
		e.Awaits(a.Pod.UID, a.OrderID)
	}
	return e
}

// by names the preemptor in the Event of a victim, by UID alone: tenants do not learn each other's names.
func (o *pendingOrder) by() string {
	if o.group != nil {
		return "pod group " + o.ref().UID
	}
	return "pod " + o.ref().UID
}

// startCommit commits an order outside the scheduling cycle. The goroutine lives on after the cycle and ends with the engine's context. The
// planner stores no order before its watch shows the nomination, which the scheduler writes after the cycle.
func (e *engine) startCommit(order *pendingOrder) {
	order.span.Tell("order_id", order.id, "request_id", order.plan.RequestID, "decision_id", order.plan.DecisionID, "node", order.chosen.Node, "victims", len(order.chosen.Victims))
	goroutines.GoRecovered(order.span.In(e.life), "commit", func(ctx context.Context) {
		start := e.clock.Now()
		// Here and not where it happens: a write to the log can cost a scheduling cycle its turn on the processor.
		logger := klog.FromContext(ctx)
		logger.Info("preemptor_nominated", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid, "node", order.chosen.Node, "order_id", order.id, "request_id", order.plan.RequestID, "decision_id", order.plan.DecisionID,
			"victims", len(order.chosen.Victims), "awaited", len(order.chosen.Awaited))
		err := e.commit(ctx, order)
		executed(operationCommit, err, e.clock.Since(start))
		if ctx.Err() != nil {
			return
		}
		var unstored *streams.NotStoredError
		var void *voidError
		switch {
		case errors.As(err, &unstored):
			e.planner.Commits.Silent(start)
		case err == nil || errors.As(err, &void):
			if e.planner.Commits.Succeeded() {
				e.memory.Retries.OrdersCarried()
			}
		}
		if err == nil {
			return
		}
		if errors.Is(err, orders.ErrPodGone) {
			e.inflight.Abandon(order.id)
			logger.Info("order_dropped", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid, "node", order.chosen.Node, "order_id", order.id, "reason", err.Error())
			return
		}
		logger.Error(err, "order_not_committed", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid, "node", order.chosen.Node, "order_id", order.id)
		var lives *streams.OrderLivesError
		if errors.As(err, &lives) {
			e.supersededBy(ctx, order, lives.Stored)
			return
		}
		wait := time.Duration(0)
		if void != nil {
			wait = orders.RevertWait
		} else if errors.Is(err, streams.ErrTooLarge) {
			wait = orders.TooLargeWait
		}
		e.inflight.Fail(order.id, err.Error(), e.clock.Now(), wait)
	})
}

// supersededBy gives up an order for one that is alive in the stream: that one is adopted, and the
// nomination that it does not know of is deleted in memory. The pod's next cycle is refused for it.
func (e *engine) supersededBy(ctx context.Context, order *pendingOrder, stored natsbus.Record) {
	e.inflight.Supersede(order.id)
	e.takeOrder(ctx, stored)
	e.applyActivation(ctx, orders.Activation{Order: order.entry(), Revert: true, Reason: "another order for this pod is in the stream"})
}

// Reasons of voids that the plugin tells apart.
const (
	voidNothing         = "nothing-to-order" // the pods whose room is wanted leave anyway
	voidSuperseded      = "superseded"       // another message of the subject was first
	voidPreemptorGone   = "preemptor-gone"
	voidPreemptorBound  = "preemptor-bound"
	voidNotAcknowledged = "not-acknowledged" // by the stream
	voidNotTaken        = "publish-refused"  // by the stream
)

// voidError says that the planner has stored no order, and never will under this id.
type voidError struct{ wire.Void }

func (v *voidError) Error() string { return v.Reason + ": " + v.Message }

// commit has the planner store an order, and takes in what it answers. An error says that the order is not stored, as far as can be known.
func (e *engine) commit(ctx context.Context, order *pendingOrder) error {
	question, inMemory, err := e.commitOf(ctx, order)
	if err != nil {
		return err
	}
	failpoints.At(failpoints.BeforePublish)
	asking, span := e.planner.Tracer.Begin(ctx, "commit")
	reply, err := e.committer.Ask(asking, e.store.Subjects.Commit(), question)
	span.End(err)
	if err != nil {
		return err
	}
	failpoints.At(failpoints.AfterPublish)
	if reply.Order == nil {
		return e.voided(ctx, order, *reply.Void, inMemory)
	}
	stored := reply.Order
	e.inflight.Stored(stored, orders.OpensAt(stored, e.clock.Now()))
	// Pods are stopped in memory only now: while no order can be stored, each try would throw them back for nothing.
	// The order does not wait for those for which it is too late: the next cycle plans for them.
	for _, v := range e.preemptAllInMemory(ctx, order, inMemory) {
		e.inflight.Stays(order.id, v.Pod.UID)
	}
	failpoints.At(failpoints.AfterCommit)
	klog.FromContext(ctx).Info("order_committed", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid, "node", order.chosen.Node, "order_id", order.id, "request_id", order.plan.RequestID, "decision_id", order.plan.DecisionID,
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
	clusterUID, err := e.control.ClusterUID()
	if err != nil {
		return nil, nil, err
	}
	reading, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	fence, err := e.leadership.Fence.Get(reading, e.store.Subjects.EpochsBucket())
	if err != nil {
		return nil, nil, streams.Unstored(fmt.Errorf("fencing epoch: %w", err))
	}
	commit = &wire.CommitRequest{
		APIVersion: wire.APIVersion,
		OrderID:    order.id,
		ClusterUID: clusterUID,
		Bridge:     wire.Source("scheduler", e.identity),
		Fence:      fence,
		Offer:      order.plan.Offer,
		After:      int64(order.after),
		Placements: order.chosen.Places,
		Group:      order.group,
		StoreBy:    wire.At(wire.Steady(order.storeBy())),

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
// preemptor's next order to be stored behind.
func (e *engine) voided(ctx context.Context, order *pendingOrder, void wire.Void, inMemory []verify.Victim) error {
	call, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	subject := e.store.Subjects.Order(order.kind(), string(order.uid))
	last, found, err := e.store.Records.Last(call, e.store.Subjects.OrdersStream(), subject)
	found = found && err == nil
	if found && e.inflight.HasOrder(order.id) {
		e.committer.Read(subject, last.Sequence)
	}
	switch void.Reason {
	case voidNothing:
		if stay := e.preemptAllInMemory(ctx, order, inMemory); len(stay) > 0 {
			return &voidError{wire.Void{Reason: "victim-bound", Message: "a victim was being bound, and could not be stopped in memory"}}
		}
		e.inflight.Remember(&wire.Outcome{OrderID: order.id, Result: wire.ResultSucceeded})
		e.succeeded(order.id, nil)
		return nil
	case voidSuperseded:
		if found {
			return &streams.OrderLivesError{Stored: last}
		}
	case voidPreemptorGone, voidPreemptorBound:
		if e.pending(orders.RefOf(order.pods[0])) == nil {
			return orders.ErrPodGone
		}
	case voidNotAcknowledged, voidNotTaken:
		return streams.Unstored(&voidError{void})
	}
	return &voidError{void}
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
	klog.FromContext(ctx).Info("victim_preempted_in_memory", "kind", order.kind(), "pod", order.object(), "pod_uid", order.uid, "node", order.chosen.Node, "order_id", order.id, "victim", klog.KObj(victim), "victim_uid", victim.UID, "phase", where)
	minor.Recorder(e.handle, klog.FromContext(ctx)).Eventf(victim, nil, v1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by %s on node %s (in kube-scheduler memory).", order.by(), victim.Spec.NodeName)
	return true
}

// Bounds of clearing nominations of members in the API.
const (
	clearTimeout = 5 * time.Second
	clearAgain   = 100 * time.Millisecond
)

// clearNominations takes nominations of members back in the API: the scheduler keeps those of members that fit nowhere, and an
// order that was not stored has no evictor. Each is cleared only while it is the one that was seen, and no order is behind it.
func (e *engine) clearNominations(ctx context.Context, pods []*v1.Pod) {
	e.handle.Parallelizer().Until(ctx, len(pods), func(i int) {
		defer goroutines.RecoverPanic(ctx, "clear", nil)
		if pod, err := pods[i], e.clearNomination(ctx, pods[i]); err != nil {
			klog.FromContext(ctx).Error(err, "nomination_not_cleared", "pod", klog.KObj(pod), "pod_uid", pod.UID, "node", pod.Status.NominatedNodeName)
		}
	}, Name)
}

// clearNomination patches one member. A conflict says that it has changed: it is looked at again.
func (e *engine) clearNomination(ctx context.Context, pod *v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	err := retry.RetryOnConflict(wait.Backoff{Duration: clearAgain, Steps: int(clearTimeout / clearAgain)}, func() error {
		current, order := e.current(orders.RefOf(pod)), e.inflight.Known(pod.UID)
		if current == nil || current.Status.NominatedNodeName != pod.Status.NominatedNodeName || (order != nil && !order.Phase.Reverts()) {
			return nil
		}
		return queues.PatchStatus(ctx, e.handle.ClientSet(), current, nil, true)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// membersLook is between two looks for the members of gangs.
const membersLook = 2 * time.Second

// runMembers looks for the members of gangs until the context ends.
func (e *engine) runMembers(ctx context.Context) {
	for ctx.Err() == nil {
		goroutines.Sleep(ctx, membersLook)
		e.lookForMembers(ctx, e.clock.Now())
	}
}

// lookForMembers gives up the room of gangs that have had too few pods for a while, and tells so.
func (e *engine) lookForMembers(ctx context.Context, now time.Time) {
	for orderID, group := range e.inflight.ReleasedGroups() {
		there, needed := e.cluster.gangSize(group.Namespace, group.Name)
		note := fmt.Sprintf("%d of the %d pods that the gang needs are there: the room that was made for it is free for others", there, needed)
		if !e.inflight.MembersMissing(orderID, note, there < needed, now) || !e.leadership.Now(ctx) {
			continue
		}
		minor.Recorder(e.handle, klog.FromContext(ctx)).Eventf(minor.GroupReference(group.Namespace, group.Name, types.UID(group.UID)), nil,
			v1.EventTypeWarning, "RoomGivenUp", "MakeWay", "%s", note)
	}
}

// groupDeleted takes in that a PodGroup was deleted: it needs no room.
func (e *engine) groupDeleted(uid types.UID) {
	e.forget(uid)
	e.verified.failures.Forget(string(uid))
}

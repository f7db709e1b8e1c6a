package preempt

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

const (
	// followSince is how far back the streams are read at the start: longer than any order lives.
	followSince = maxNotAfter + time.Minute
	// maxNotAfterAhead is how far ahead an order's notAfter may lie: further, it is no scheduler's.
	maxNotAfterAhead = maxNotAfter + time.Minute
	// longestGrace bounds, in seconds, what is believed of a victim's grace period: a year.
	longestGrace = 365 * 24 * 60 * 60
	// revertWait is how long a failed order waits for the informer to show that the evictor has taken
	// the nomination back, so that the next cycle does not start with it.
	revertWait = 500 * time.Millisecond
	// answerFresh is how old an outcome may be to tell that evictors are at work.
	answerFresh = time.Minute
)

// Reasons of outcomes that the plugin tells apart.
const (
	reasonAwaitedFailed = "awaited-order-failed"
	reasonVictimSpared  = "victim-spared"
	reasonFutureEpoch   = "future-epoch"

	// The evictors' breaker is open, for all or for preemptors of the namespace.
	reasonBreakerOpen          = "breaker-open"
	reasonBreakerOpenNamespace = "breaker-open-namespace"
)

// follow begins to read ORDERS and OUTCOMES, until the context ends. Every replica does, so that the next leader
// knows the live orders. The two are read independently and in any order.
func (e *engine) follow(ctx context.Context) {
	since := e.clock.Now().Add(-followSince)
	goroutines.KeepRunning(ctx, "follow", func(ctx context.Context) {
		e.records.Follow(ctx, e.subjects.OutcomesStream, e.subjects.Outcomes, since, func(r natsbus.Record) { e.takeOutcome(ctx, r) })
	})
	goroutines.KeepRunning(ctx, "follow", func(ctx context.Context) {
		e.records.Follow(ctx, e.subjects.OrdersStream, e.subjects.Orders, since, func(r natsbus.Record) { e.takeOrder(ctx, r) })
	})
}

// takeOrder adopts an order that this process did not write, where it is alive and its pod is pending.
func (e *engine) takeOrder(ctx context.Context, r natsbus.Record) {
	order, err := e.unwrapOrder(r.Data, r.Subject)
	if err != nil {
		e.reportIgnored(ctx, "order_not_understood", r, err)
		return
	}
	uid := order.PreemptorUID()
	if uid == "" || order.Kind == wire.KindQuota || e.inflight.hasOrder(order.OrderID) {
		return
	}
	if r.Subject != e.subjectOf(order) {
		// One live order a preemptor holds by the subject alone; evictors put this one aside.
		e.reportIgnored(ctx, "order_not_understood", r, &misroutedError{reasonWrongSubject, "an order for " + uid})
		return
	}
	if clusterUID, err := e.clusterUID(); err != nil || clusterUID != order.ClusterUID {
		return
	}
	now := e.clock.Now()
	if order.NotAfter.After(now.Add(maxNotAfterAhead)) {
		e.reportIgnored(ctx, "order_not_understood", r, &misroutedError{reasonNotAfter, "notAfter " + order.NotAfter.Format(time.RFC3339)})
		return
	}
	pod := e.waitingFor(order)
	if pod == nil {
		return
	}
	outcome := e.inflight.outcome(order.OrderID)
	opensAt := order.NotAfter.Add(gateSlack)
	if outcome != nil {
		if outcome.Result != wire.ResultSucceeded {
			return
		}
		opensAt = leavingUntil(outcome, earlier(outcome.FinishedAt.Time, now))
	}
	taken := adopted(order, opensAt)
	taken.message = r.Data
	if !e.inflight.adopt(taken, now) {
		return
	}
	klog.FromContext(ctx).Info("order_adopted", "kind", order.Kind, "pod", klog.KObj(pod), "pod_uid", uid, "order_id", order.OrderID, "node", order.Node)
	// Its place in its queue is held from now on, so that the queue gate, which may have held it, activates it no more.
	e.activate(ctx, e.pending(refOf(pod)))
	if outcome == nil {
		outcome = e.inflight.outcome(order.OrderID) // it may have come since
	}
	if outcome != nil {
		e.applyOutcome(ctx, outcome)
	}
}

// waitingFor is a pod that an order makes room for, of a group one of the members; nil where none waits for a node.
func (e *engine) waitingFor(order *wire.EvictionOrder) *v1.Pod {
	for _, place := range adopted(order, time.Time{}).places() {
		pod := e.current(refOfPlacement(place))
		if pod != nil && e.placements.knows(pod.UID) && pod.Spec.NodeName == "" {
			return pod
		}
	}
	return nil
}

// adopted is an order from the stream as the inflight state sees it.
func adopted(order *wire.EvictionOrder, opensAt time.Time) *inFlightPreemption {
	e := &inFlightPreemption{
		orderID:   order.OrderID,
		node:      order.Node,
		awaited:   map[types.UID]string{},
		remaining: map[types.UID]time.Time{},
		createdAt: order.CreatedAt.Time,
		opensAt:   opensAt,
	}
	if order.Kind == wire.KindGroup {
		e.enterGroup(order.Group, order.Members)
	} else {
		e.preemptor = wire.PodRef{Namespace: order.Preemptor.Namespace, Name: order.Preemptor.Name, UID: order.Preemptor.UID}
	}
	for _, v := range order.Victims {
		e.victims = append(e.victims, types.UID(v.UID))
		e.remaining[types.UID(v.UID)] = time.Time{}
	}
	for _, a := range order.Awaited {
		e.awaits(types.UID(a.UID), a.OrderID)
	}
	return e
}

// takeOutcome remembers an outcome and applies it.
func (e *engine) takeOutcome(ctx context.Context, r natsbus.Record) {
	outcome, err := e.unwrapOutcome(r.Data, r.Subject)
	if err != nil {
		e.reportIgnored(ctx, "outcome_not_understood", r, err)
		return
	}
	if r.Subject != e.subjects.Outcome(outcome.OrderID) {
		e.reportIgnored(ctx, "outcome_not_understood", r, &misroutedError{reasonWrongSubject, "an outcome of " + outcome.OrderID})
		return
	}
	if clusterUID, err := e.clusterUID(); err == nil && clusterUID != outcome.ClusterUID {
		e.reportIgnored(ctx, "outcome_not_understood", r, &misroutedError{reasonOtherCluster, "cluster " + outcome.ClusterUID})
		return
	}
	failpoint(failOnOutcome)
	e.inflight.remember(outcome)
	// The stream is read from its past after a start.
	if e.clock.Since(outcome.FinishedAt.Time) < answerFresh {
		if e.orders.answered() {
			e.ordersCarried(ctx)
		}
		e.tellsOfBreaker(ctx, outcome)
	}
	preemptor, _, _ := e.inflight.nominationsOf(outcome.OrderID)
	e.applyOutcome(ctx, outcome)
	e.retry.orderEnded(preemptor.Namespace)
}

// applyOutcome does what an order's end asks for. It may be called more than once for one outcome.
func (e *engine) applyOutcome(ctx context.Context, outcome *wire.Outcome) {
	if outcome.Result == wire.ResultSucceeded {
		e.succeeded(outcome.OrderID, outcome)
		return
	}
	known := e.inflight.fail(outcome.OrderID, "outcome "+outcome.Result+": "+outcome.Reason, e.clock.Now(), revertWait, func(w activation) {
		e.orderFailed(ctx, w, outcome)
	})
	if !known {
		e.orderUndecided(outcome.OrderID) // its preemptor is gone, or it was taken in before
	}
}

// orderFailed notes what an order's failure says of its victims, its node and the evictors, before the order is reverted.
func (e *engine) orderFailed(ctx context.Context, w activation, outcome *wire.Outcome) {
	if w.own {
		executed(operationOrder, errors.New(outcome.Result), w.waited)
	}
	if outcome.Reason == reasonFutureEpoch {
		e.fence.forget(outcome.Epoch)
	}
	klog.FromContext(ctx).Info("order_failed", "pod_uid", w.pod.UID, "order_id", outcome.OrderID, "node", w.node, "result", outcome.Result, "reason", outcome.Reason, "message", outcome.Message)
	if e.refusedByBreaker(ctx, w, outcome) {
		e.lookAtPlaces(w)
		return
	}
	// Other victims may do on the same node, where the next plan can leave those out.
	others := e.unevictable.take(types.UID(w.pod.UID), w.pod.Namespace, outcome.Victims) > 0
	e.failed(w, nodesFault(outcome) && !others)
	e.lookAtPlaces(w)
}

// failed notes that an order came to nothing, unless its pods are bound or gone. Which node of a group's is at fault is not known.
func (e *engine) failed(w activation, nodesFault bool) {
	if nodesFault && w.members == nil {
		e.nodeBackoff.failed(types.UID(w.pod.UID), w.node)
	}
	for _, place := range w.places() {
		e.pending(refOfPlacement(place))
	}
}

// lookAtPlaces takes in where the API shows the pods of an order nominated: that may have changed before the order's end was known.
func (e *engine) lookAtPlaces(w activation) {
	for _, place := range w.places() {
		ref := refOfPlacement(place)
		if pod := e.pending(ref); pod != nil {
			e.inflight.nominatedTo(pod.UID, pod.Status.NominatedNodeName)
		}
	}
}

// nodesFault reports whether an order came to nothing for something about its node or victims, so that the
// same plan would fail again.
func nodesFault(outcome *wire.Outcome) bool {
	switch outcome.Result {
	case wire.ResultFailed:
		return outcome.Reason != reasonAwaitedFailed
	case wire.ResultRefused:
		return outcome.Reason == reasonVictimSpared
	}
	return false
}

// succeeded notes that an order's victims are deleted or leaving; outcome is nil where all were dealt with in memory.
func (e *engine) succeeded(orderID string, outcome *wire.Outcome) {
	now := e.clock.Now()
	took, own := e.inflight.succeed(orderID, now, leavingUntil(outcome, now), func(uid types.UID) bool {
		return !e.placements.knows(uid) || e.placements.pending(uid)
	})
	if own && outcome != nil {
		executed(operationOrder, nil, took)
	}
	_, places, _ := e.inflight.nominationsOf(orderID)
	for _, place := range places {
		// The nomination may have been taken away, or the node, while the order was carried out.
		ref := refOfPlacement(place)
		if pod := e.current(ref); pod != nil && e.placements.knows(pod.UID) {
			e.inflight.nominatedTo(pod.UID, pod.Status.NominatedNodeName)
		}
		if _, err := e.nodes.Get(place.Node); apierrors.IsNotFound(err) {
			e.inflight.nodeDeleted(place.Node)
		}
	}
}

// leavingUntil is when the last victim should be gone: its grace period and a minute after `from`.
func leavingUntil(outcome *wire.Outcome, from time.Time) time.Time {
	var grace int64
	if outcome != nil {
		for _, v := range outcome.Victims {
			grace = max(grace, min(v.GracePeriodSeconds, longestGrace))
		}
	}
	return from.Add(time.Duration(grace)*time.Second + wire.LeavingSlack)
}

// misroutedError is a message that can be read, and that no writer of this cluster would have put where it is.
type misroutedError struct{ reason, detail string }

func (s *misroutedError) Error() string { return s.reason + ": " + s.detail }

// Reasons for which messages are ignored besides those of wire.MalformedError.
const (
	reasonWrongSubject = "wrong-subject"
	reasonOtherCluster = "other-cluster"
	reasonNotAfter     = "not-after-too-far"
)

// reportIgnored logs and counts a message that is ignored, once, with its place.
func (e *engine) reportIgnored(ctx context.Context, event string, r natsbus.Record, err error) {
	var malformed *wire.MalformedError
	var misrouted *misroutedError
	var failure *signatureError
	reason := "other"
	switch {
	case errors.As(err, &failure):
		reason = failure.reason
	case errors.As(err, &malformed):
		reason = malformed.Reason
	case errors.As(err, &misrouted):
		reason = misrouted.reason
	}
	messagesIgnored.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Error(err, event, "subject", r.Subject, "sequence", r.Sequence)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// storedOrderLives reports whether a pod's last order in the stream, which this process may not have read yet, makes room
// or keeps it. In doubt it does.
func (e *engine) storedOrderLives(ctx context.Context, uid types.UID) bool {
	ctx, cancel := context.WithTimeout(ctx, natsCallTimeout)
	defer cancel()
	subject := e.subjects.PodOrder(string(uid))
	stored, found, err := e.records.Last(ctx, e.subjects.OrdersStream, subject)
	if err != nil || !found {
		return err != nil
	}
	order, err := e.unwrapOrder(stored.Data, subject)
	if err != nil {
		return !unverified(err)
	}
	outcome, found, err := e.lastOutcome(ctx, order.OrderID)
	switch {
	case err != nil:
		return true
	case !found:
		return e.clock.Now().Before(order.NotAfter.Add(gateSlack))
	}
	now := e.clock.Now()
	return outcome.Result == wire.ResultSucceeded && now.Before(leavingUntil(outcome, earlier(outcome.FinishedAt.Time, now)))
}

// lastOutcome is an order's outcome. One whose signature does not hold is none; one that cannot be read is found, and an
// error.
func (e *engine) lastOutcome(ctx context.Context, orderID string) (outcome *wire.Outcome, found bool, err error) {
	subject := e.subjects.Outcome(orderID)
	stored, found, err := e.records.Last(ctx, e.subjects.OutcomesStream, subject)
	if err != nil || !found {
		return nil, false, err
	}
	outcome, err = e.unwrapOutcome(stored.Data, subject)
	if unverified(err) {
		return nil, false, nil
	}
	return outcome, true, err
}

// runActivator does what the state of the orders in flight asks for. It is the only goroutine that opens
// gates, so each pod is activated once. Activate and the nominator lock the scheduling queue, which holds its
// lock while it calls PreEnqueue and queueing hints: those must only ever leave a note, for this
// goroutine to find.
func (e *engine) runActivator(ctx context.Context) {
	for {
		activations, next := e.inflight.due(e.clock.Now())
		for _, w := range activations {
			e.applyActivation(ctx, w)
		}
		inFlightGauge.Set(float64(e.inflight.count()))
		e.showBreakers()

		var timer <-chan time.Time
		if !next.IsZero() {
			timer = e.clock.After(max(next.Sub(e.clock.Now()), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-e.inflight.changed:
		case <-timer:
		}
	}
}

// showBreakers sets the metrics of the breakers.
func (e *engine) showBreakers() {
	pods, _ := e.breaker.current()
	breakerGauge.Set(float64(pods))
	groups, _ := e.groupBreaker.current()
	groupBreakerGauge.Set(float64(groups))
	evictors, _ := e.orders.state()
	orderBreakerGauge.Set(float64(evictors))
}

// applyActivation lets a pod be tried again. Its gate is open, or opens as soon as its nomination is deleted. It
// must not be called under any lock. Nominations of a group that the API still shows are cleared there first, on a goroutine of their
// own: a cycle in between would begin with them. A standby clears none: by its clock, or by what it has read, the order may seem over
// that the leader carries on.
func (e *engine) applyActivation(ctx context.Context, w activation) {
	defer goroutines.RecoverPanic(ctx, "waker", func() { e.activateAgain(w) })
	failpoint(failBeforeActivate)
	if w.unanswered {
		e.perNamespace.undecided(w.orderID)
		e.futile(ctx, w.orderID, notStarted)
	}
	if w.revert {
		if shown := e.revert(w); len(shown) > 0 {
			goroutines.GoRecovered(e.life, "clear", func(ctx context.Context) {
				defer goroutines.RecoverPanic(ctx, "waker", func() { e.activateAgain(w) })
				if e.leadership.now(ctx) {
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
func (e *engine) activateAgain(w activation) {
	at := e.clock.Now().Add(goroutines.RestartPause)
	e.inflight.activationFailed(w.orderID, at)
	for _, place := range w.places() {
		e.retry.tryAt(refOfPlacement(place), at)
	}
}

// release opens the gate of an order that was reverted, and lets its pods be tried again.
func (e *engine) release(ctx context.Context, w activation) {
	logger := klog.FromContext(ctx)
	if w.revert {
		e.inflight.finish(w.orderID)
		logger.Info("preemption_reverted", "pod", klog.KRef(w.pod.Namespace, w.pod.Name), "pod_uid", w.pod.UID, "order_id", w.orderID, "node", w.node, "reason", w.reason)
	} else {
		if w.waited > 0 {
			orderToLastVictimGone.Observe(w.waited.Seconds())
		}
		logger.Info("preemptor_released", "pod", klog.KRef(w.pod.Namespace, w.pod.Name), "pod_uid", w.pod.UID, "order_id", w.orderID, "node", w.node, "reason", w.reason, "seconds", w.waited.Seconds())
	}
	if w.members == nil {
		e.activate(ctx, e.podOf(w.pod))
		return
	}
	var members []*v1.Pod
	for _, place := range w.members {
		members = append(members, e.pending(refOfPlacement(place)))
	}
	e.activate(ctx, members...)
}

// revert deletes the nominations of an order in memory, and returns the members of a group that the API still shows nominated by it:
// no evictor takes that back there, or none has. For a pod the next cycle does.
func (e *engine) revert(w activation) (shown []*v1.Pod) {
	for _, place := range w.places() {
		pod := e.podOf(refOfPlacement(place))
		if w.unpublished || pod.Status.NominatedNodeName == place.Node {
			if w.members == nil {
				e.reverted.note(pod.UID, place.Node)
			} else if pod.Status.NominatedNodeName == place.Node {
				shown = append(shown, pod)
			}
			e.pending(refOf(pod)) // it may have gone meanwhile
		}
		e.handle.DeleteNominatedPodIfExists(pod)
	}
	return shown
}

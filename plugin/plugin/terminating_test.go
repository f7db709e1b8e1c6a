package plugin

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// leavingPod is being deleted; its grace period ends after `left`.
func leavingPod(pod *v1.Pod, left time.Duration) *v1.Pod {
	ends := metav1.NewTime(time.Now().Add(left))
	pod.DeletionTimestamp = &ends
	return pod
}

func awaitedBy(plan wire.Candidate, uids ...string) wire.Candidate {
	for _, uid := range uids {
		plan.Awaited = append(plan.Awaited, wire.Awaited{UID: uid, Namespace: "default", Name: uid})
	}
	return plan
}

func TestWhereTerminatingPodsAloneMakeTheRoomThePodIsNominatedAndNothingIsOrderedOrHeld(t *testing.T) {
	p := pod("p", "", high, whole).Obj()
	a := leavingPod(pod("a", "n1", mid, whole).Obj(), 20*time.Second)
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, a)
	w.bus.plan = answers(awaitedBy(candidate("n1"), "a"))

	result, status := w.cycle(p)
	w.show(p, "n1")

	if !status.IsSuccess() || result.NominatedNodeName != "n1" || status.Message() == "" {
		t.Fatalf("result %+v, status %v", result, status)
	}
	if w.entry(p.UID) != nil || w.gated(p) {
		t.Error("the pod has an order, or is held")
	}
	time.Sleep(50 * time.Millisecond)
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if len(w.bus.messages) != 0 {
		t.Errorf("%d messages are in the stream", len(w.bus.messages))
	}
}

func TestAPodThatAwaitsTerminatingPodsIsTriedAgainWhenTheyAreOverdue(t *testing.T) {
	p := pod("p", "", high, whole).Obj()
	a := leavingPod(pod("a", "n1", mid, whole).Obj(), time.Second-wire.LeavingSlack)
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, a)
	w.bus.plan = answers(awaitedBy(candidate("n1"), "a"))

	w.cycle(p)
	before := w.activator.of(p.UID)

	w.eventually("the pod is tried again", func() bool { return w.activator.of(p.UID) > before })
}

func TestRunningVictimsAreOrderedBesideTerminatingPodsAndBothAreWaitedFor(t *testing.T) {
	p := pod("p", "", high, whole).Obj()
	a := leavingPod(pod("a", "n1", mid, medium).Obj(), 20*time.Second)
	b := pod("b", "n1", low, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, a, b)
	w.bus.plan = answers(awaitedBy(candidate("n1", "!b"), "a"))

	e := w.nominated(p, "n1")
	w.show(p, "n1")
	order := w.order(1)

	expectVictims(t, e, "b")
	remover, awaited := e.Awaited[a.UID]
	if len(order.Victims) != 1 || len(order.Awaited) != 1 || order.Awaited[0].OrderID != "" || !awaited || remover != "" {
		t.Errorf("victims %v, awaited %v in the order; awaited here %v", order.Victims, order.Awaited, e.Awaited)
	}
	w.end(order, wire.ResultSucceeded)
	w.delete(b)
	w.eventually("the pod waits for the terminating pod alone", func() bool {
		e := w.entry(p.UID)
		return e != nil && e.Phase == orders.Leaving && len(e.Remaining) == 1
	})
	w.delete(a)
	w.eventually("the pod is released when both have left", func() bool { e := w.entry(p.UID); return e != nil && e.Phase == orders.Released })
}

func TestAPlannedVictimThatHasBegunToLeaveIsAwaited(t *testing.T) {
	p := pod("p", "", high, whole).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, leavingPod(pod("a", "n1", mid, whole).Obj(), 20*time.Second))
	w.bus.plan = answers(candidate("n1", "!a"))

	result, status := w.cycle(p)

	if !status.IsSuccess() || result.NominatedNodeName != "n1" || w.entry(p.UID) != nil || len(w.bus.requests) != 1 {
		t.Errorf("result %+v, status %v after %d requests", result, status, len(w.bus.requests))
	}
}

func TestAnOverduePodMakesNoRoomWhateverThePlannerSays(t *testing.T) {
	for name, plan := range map[string]wire.Candidate{"as a victim": candidate("n1", "!a"), "awaited": awaitedBy(candidate("n1"), "a")} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", high, whole).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, leavingPod(pod("a", "n1", mid, whole).Obj(), -wire.LeavingSlack))
			w.bus.plan = answers(plan)

			_, status := w.cycle(p)

			if status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Errorf("status %v", status)
			}
		})
	}
}

func TestARunningPodIsNotAwaitedWithoutAnOrder(t *testing.T) {
	p := pod("p", "", high, whole).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", mid, whole).Obj())
	w.bus.plan = answers(awaitedBy(candidate("n1"), "a"))

	_, status := w.cycle(p)

	if status.IsSuccess() {
		t.Errorf("status %v", status)
	}
}

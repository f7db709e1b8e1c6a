package preempt

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

const forbidden = `403 Forbidden: pods "a" is forbidden: ValidatingAdmissionPolicy 'keep' denied request: this pod may not be deleted`

// equalVictims is a world in which p fits n1 without a or without b, and whose planner takes the first that it is not asked to
// leave out.
func equalVictims(t *testing.T) (*world, *v1.Pod) {
	t.Helper()
	p := pod("p", "", high, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, medium).Obj(), pod("b", "n1", low, medium).Obj(), pod("c", "n1", high, small).Obj())
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		left := slices.DeleteFunc([]string{"a", "b"}, func(uid string) bool { return slices.Contains(request.RefusedVictims, uid) })
		if len(left) == 0 {
			return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NotEnoughRoom", Message: "too little room"}}, nil
		}
		return &wire.PlanReply{Candidates: []wire.Candidate{candidate("n1", append([]string{"!" + left[0]}, left[1:]...)...)}}, nil
	}
	return w, p
}

// failedOutcome is that of an order whose victims could not be evicted.
func failedOutcome(order *wire.EvictionOrder, reason string) *wire.Outcome {
	outcome := &wire.Outcome{
		OrderID: order.OrderID, Kind: "pod", ClusterUID: order.ClusterUID, Epoch: order.Fence.Epoch, Result: wire.ResultFailed, Reason: "delete-refused", Evictor: "test",
		StartedAt: order.CreatedAt, FinishedAt: wire.At(time.Now()), PreemptorUID: order.Preemptor.UID, Node: order.Node,
	}
	for _, v := range order.Victims {
		outcome.Victims = append(outcome.Victims, wire.VictimOutcome{Namespace: v.Namespace, Name: v.Name, UID: v.UID, Result: memory.VictimFailed, Reason: reason, Message: forbidden})
	}
	return outcome
}

// fails ends an order whose victims could not be evicted.
func (w *world) fails(order *wire.EvictionOrder, reason string) {
	w.t.Helper()
	w.show(st.MakePod().Namespace("default").Name(order.Preemptor.Name).UID(order.Preemptor.UID).Priority(high).Req(medium).SchedulerName("default-scheduler").Obj(), "")
	w.tell(failedOutcome(order, reason))
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
}

func TestWhereOneOfTwoEqualVictimsCannotBeEvictedTheOtherGoesNext(t *testing.T) {
	w, p := equalVictims(t)
	expectVictims(t, w.nominated(p, "n1"), "a")
	w.show(p, "n1")
	w.fails(w.order(1), "Forbidden")

	expectVictims(t, w.nominated(p, "n1"), "b")

	if last := w.bus.requests[len(w.bus.requests)-1]; !slices.Equal(last.RefusedVictims, []string{"a"}) {
		t.Errorf("the planner is asked to leave out %v", last.RefusedVictims)
	}
}

// heldClock tells the time once a channel is closed.
type heldClock struct {
	clock.PassiveClock
	until chan struct{}
}

func (c heldClock) Now() time.Time {
	<-c.until
	return c.PassiveClock.Now()
}

func TestAnOrderIsNotRevertedBeforeItsVictimsAreKnownAsImpossibleToEvict(t *testing.T) {
	w, p := equalVictims(t)
	w.nominated(p, "n1")
	w.show(p, "n1")
	order, engine := w.order(1), w.plugin.engine
	noted := make(chan struct{})
	engine.memory.Victims = memory.NewUnevictable(heldClock{engine.clock, noted}) // they cannot be noted yet
	w.tell(failedOutcome(order, "Forbidden"))
	w.eventually("the order has failed", func() bool {
		entry := w.entry("p")
		return entry == nil || entry.Phase.Reverts()
	})

	engine.inflight.NominatedTo("p", "")
	activations, _ := engine.inflight.Due(time.Now().Add(orders.RevertWait))

	if entry := w.entry("p"); len(activations) > 0 || entry == nil || entry.Phase != orders.Reverting {
		t.Errorf("activations %+v, entry %+v", activations, entry)
	}
	close(noted)
	w.eventually("the order is given up", func() bool { return w.entry("p") == nil })
}

func TestAVictimThatCannotBeEvictedIsNotTakenThoughThePlannerNamesItAgain(t *testing.T) {
	w, p := equalVictims(t)
	w.bus.plan = answers(candidate("n1", "!a", "b"))
	w.plugin.engine.memory.Victims.Take("p", "default", []wire.VictimOutcome{{UID: "a", Result: memory.VictimFailed, Reason: "Forbidden"}})

	expectVictims(t, w.nominated(p, "n1"), "b")
}

func TestAPodWhoseVictimsCannotBeEvictedSaysWhyAndIsTriedAgainLater(t *testing.T) {
	w, p := equalVictims(t)
	for _, uid := range []string{"a", "b"} {
		w.plugin.engine.memory.Victims.Take("p", "default", []wire.VictimOutcome{{Namespace: "default", Name: uid, UID: uid, Result: memory.VictimFailed, Reason: "Forbidden", Message: forbidden}})
	}

	_, status := w.cycle(p)

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "2 pods are left out for now, as impossible to evict: 403 Forbidden") ||
		!strings.Contains(status.Message(), "this pod may not be deleted") {
		t.Errorf("status %v", status)
	}
	if at := w.plugin.engine.memory.Retries.TriedAt("p"); time.Until(at) < memory.UnevictableInitial/2 || time.Until(at) > memory.UnevictableInitial {
		t.Errorf("tried again at %s", at)
	}
}

package queues

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"makeway.dev/makeway/plugin/wire"
)

// karpenterProvisions is what Karpenter adds nodes for: IsProvisionable of pkg/utils/pod/scheduling.go in
// kubernetes-sigs/karpenter, without owners.
func karpenterProvisions(pod *v1.Pod) bool {
	failed := slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable
	})
	return failed && pod.Spec.NodeName == "" && pod.Status.NominatedNodeName == ""
}

// autoscalerScalesUp is what the cluster autoscaler adds nodes for: isUnschedulable of
// cluster-autoscaler/utils/kubernetes/listers.go in kubernetes/autoscaler, and SchedulerUnprocessedPods for
// schedulers named in --bypassed-scheduler-names.
func autoscalerScalesUp(pod *v1.Pod, bypassed bool) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.Status == v1.ConditionFalse && (c.Reason == v1.PodReasonUnschedulable || bypassed && c.Reason == "")
		}
	}
	return bypassed
}

// admits runs a pod through PreEnqueue.
func (w *gateWorld) admits(pod *v1.Pod) bool { return w.gate.Admit(pod, wire.ModeEnforce) == nil }

// heldPod is a pod that its queue holds.
func (w *gateWorld) heldPod(uid types.UID) (*waitingPod, bool) {
	held := w.gate.waiting.pods[uid]
	return held, held != nil && held.held && !held.promised
}

// unschedulable is a pod as a failed scheduling cycle leaves it.
func unschedulable(pod *v1.Pod, message string) *v1.Pod {
	failed := pod.DeepCopy()
	failed.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: message,
		LastTransitionTime: metav1.NewTime(start.Add(-time.Hour)),
	}}
	return failed
}

func TestNotMorePodsComeToTheirCycleThanTheirQueueHasRoomFor(t *testing.T) {
	w := limited(t, limit("root"), limit("root.ml", "pods", 50))
	admitted := []*v1.Pod{}
	for i := range 1000 {
		if p := in("root.ml", fmt.Sprintf("p%d", i), 0, 10).Obj(); w.admits(p) {
			admitted = append(admitted, p)
		}
	}
	if len(admitted) != 50 {
		t.Fatalf("%d come to their cycle, want 50", len(admitted))
	}

	for _, p := range admitted {
		if !w.enters(p) {
			t.Errorf("%s was let in and finds no room", p.Name)
		}
	}
	if rejected := w.gate.Admit(in("root.ml", "late", 0, 10).Obj(), wire.ModeEnforce); rejected == nil || rejected.message != "queue root.ml: pods 50 of 50 used, 1 asked" {
		t.Errorf("late: %+v", rejected)
	}
}

func TestRoomThatAPodWasLetInForAndDidNotTakeGoesToTheNext(t *testing.T) {
	for name, ends := range map[string]func(*gateWorld, *v1.Pod){
		"its cycle fails otherwise": func(w *gateWorld, p *v1.Pod) { w.gate.check(p, wire.ModeEnforce); w.gate.CycleFailed(p.UID) },
		"it is deleted":             func(w *gateWorld, p *v1.Pod) { w.deletes(p) },
		"something else gates it":   func(w *gateWorld, _ *v1.Pod) { w.clock.Step(promiseLasts) },
	} {
		w := limited(t, limit("root", "pods", 1))
		first, second := in("", "first", 0, 1).Obj(), in("", "second", 0, 1).Obj()
		w.shows(first, second)
		if !w.admits(first) || w.admits(second) {
			t.Fatalf("%s: not the first alone is let in", name)
		}

		ends(w, first)

		if got := w.activated(); !slices.Equal(got, []string{"second"}) {
			t.Errorf("%s: activated %v, want the second", name, got)
		}
		if !w.admits(second) || !w.enters(second) {
			t.Errorf("%s: the second has no place", name)
		}
	}
}

func TestANewPodDoesNotTakeWhatAMoreImportantOneWasPromised(t *testing.T) {
	w, first := activatedBefore(t, 100)

	if w.admits(in("", "new", low, 50).Obj()) || w.gate.check(in("", "new", mid, 50).Obj(), wire.ModeEnforce) == nil {
		t.Error("a new pod takes what was promised")
	}
	if !w.admits(in("", "above", high, 50).Obj()) {
		t.Error("a more important pod waits for what a less important one was promised")
	}
	if !w.enters(in("", "above", high, 50).Obj()) || w.enters(first) {
		t.Error("the more important pod does not come first")
	}
}

func TestAPodThatMayPreemptInItsQueueComesToOneCycleUntilSomethingChanges(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p := in("", "p", high, 100).Obj()
	w.shows(on(in("", "v", low, 100).Obj(), "n1"), p)
	if !w.admits(p) || w.rejected(p).reason != rejectedMayHelp {
		t.Fatal("it may not preempt")
	}

	w.gate.Tried(p.UID)

	if w.admits(p) {
		t.Error("it comes to another cycle")
	}
	w.gate.AllowCycle(map[string]*v1.Pod{"p": p})
	if !w.admits(p) {
		t.Error("it does not come to a cycle though something has changed")
	}
	w.rejected(p)
	w.gate.Tried(p.UID)
	w.clock.Step(heldFlush)
	if got := w.activated(); !slices.Equal(got, []string{"p"}) || !w.admits(p) {
		t.Errorf("activated %v after five minutes", got)
	}
}

func TestAPodWhoseQueueBecomesFullOfLessImportantPodsComesToACycle(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p, equal := in("", "p", mid, 100).Obj(), on(in("", "e", mid, 60).Obj(), "n1")
	w.shows(on(in("", "v", low, 40).Obj(), "n1"), equal, p)
	if w.admits(p) {
		t.Fatal("it comes to a cycle that cannot help")
	}

	w.deletes(equal)

	if got := w.activated(); !slices.Equal(got, []string{"p"}) || !w.admits(p) {
		t.Errorf("activated %v", got)
	}
}

func TestAPodThatItsQueueHoldsNeverLooksLikeALackOfNodes(t *testing.T) {
	ctx := context.Background()
	full := "queue root: cpu 100m of 100m used, 10m asked"
	for name, test := range map[string]struct {
		pod     func(*v1.Pod) *v1.Pod
		message string
		events  int
	}{
		"a new pod":                       {func(p *v1.Pod) *v1.Pod { return p }, full, 1},
		"a pod that no node had room for": {func(p *v1.Pod) *v1.Pod { return unschedulable(p, "0/3 nodes are available: 3 Insufficient cpu.") }, full, 1},
		"a pod that could not preempt":    {func(p *v1.Pod) *v1.Pod { return unschedulable(p, "0/3 nodes are available: "+full+". makeway: no.") }, "0/3 nodes are available: " + full + ". makeway: no.", 0},
		"a pod that was held by another": {func(p *v1.Pod) *v1.Pod {
			q := unschedulable(p, "queue x")
			q.Status.Conditions[0].Reason = reasonQueueFull
			return q
		}, full, 1},
		"a pod whose limits were not known": {func(p *v1.Pod) *v1.Pod {
			q := unschedulable(p, unknownLimits)
			q.Status.Conditions[0].Reason = reasonLimitsUnknown
			return q
		}, full, 1},
	} {
		g := limited(t, limit("root", "cpu", 100))
		p := test.pod(in("", "p", low, 10).ResourceVersion("7").Obj())
		g.shows(on(in("", "v", low, 100).Obj(), "n1"))
		if g.admits(p) {
			t.Fatalf("%s: let in", name)
		}
		held, ok := g.heldPod(p.UID)
		if !ok {
			t.Fatalf("%s: not held", name)
		}
		condition := held.condition(p, start)
		if condition == nil {
			t.Fatalf("%s: nothing to write", name)
		}
		client := clientsetfake.NewClientset(p)
		if err := PatchStatus(ctx, client, p, condition, false); err != nil {
			t.Fatal(err)
		}

		got, err := client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if karpenterProvisions(got) || autoscalerScalesUp(got, false) || autoscalerScalesUp(got, true) {
			t.Errorf("%s: nodes would be added for %+v", name, got.Status.Conditions)
		}
		if len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Message != test.message || got.Status.Conditions[0].Reason != reasonQueueFull {
			t.Errorf("%s: conditions %+v", name, got.Status.Conditions)
		}
		if held.condition(got, start) != nil {
			t.Errorf("%s: written again", name)
		}
	}
}

func TestAPodThatNoNodeHasRoomForLooksLikeALackOfNodes(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p := unschedulable(in("", "p", low, 10).Obj(), "0/3 nodes are available: 3 Insufficient cpu.")
	w.shows(p)
	if !w.admits(p) || w.gate.check(p, wire.ModeEnforce) != nil {
		t.Fatal("held")
	}
	w.gate.CycleFailed(p.UID)
	w.shows(p)

	if _, held := w.heldPod(p.UID); held || !karpenterProvisions(p) || !autoscalerScalesUp(p, false) {
		t.Error("its condition is to be another")
	}
}

func TestAConditionThatACycleHasWrittenIsLookedAt(t *testing.T) {
	w := limited(t, limit("root", "cpu", 5))
	p := in("", "p", low, 10).Obj()
	w.shows(p)
	w.rejected(p) // in PreFilter, as another scheduler has taken the room
	w.clock.Step(conditionSettle)
	if held, _ := w.gate.takeConditions(); len(held) != 1 {
		t.Fatal("no condition to look at")
	}

	w.shows(unschedulable(p, "0/1 nodes are available: queue root: cpu 0 of 5m used, 10m asked."))

	if held, _ := w.gate.takeConditions(); len(held) != 1 {
		t.Error("no condition to look at at once")
	}
}

func TestPodsAreHeldSilentlyUntilItIsKnownWhetherThereAreLimits(t *testing.T) {
	w := newGateWorld(t)
	p := in("root.ml", "p", 0, 10).Obj()
	w.shows(p)

	if w.admits(p) {
		t.Error("let in")
	}
	if _, held := w.heldPod(p.UID); held {
		t.Error("its condition says so")
	}
	w.gate.Assume(true, "because")
	if held, ok := w.heldPod(p.UID); !ok || held.about != unknownLimits || !strings.HasSuffix(held.message, "because") {
		t.Errorf("held %t: %+v", ok, held)
	}
	w.gate.NoQueues()
	if got := w.activated(); !slices.Equal(got, []string{"p"}) || !w.admits(p) {
		t.Errorf("activated %v", got)
	}
}

func TestPodsThatAreNotToBeScheduledYetTakeNoRoom(t *testing.T) {
	w := limited(t, limit("root", "pods", 1))
	deleted := metav1.NewTime(start)
	going := in("", "going", 0, 1).Obj()
	going.DeletionTimestamp = &deleted

	if !w.admits(in("", "gated", 0, 1).SchedulingGates([]string{"example.com/later"}).Obj()) || !w.admits(going) {
		t.Error("held for their queue")
	}

	if !w.admits(in("", "p", 0, 1).Obj()) {
		t.Error("they take room")
	}
}

func TestAStandbyForgetsPodsThatAreGone(t *testing.T) {
	w := limited(t, limit("root", "cpu", 0))
	for i := range 1000 {
		p := in("", fmt.Sprint("p", i), 0, 1).Obj()
		w.shows(p)
		w.admits(p)
		w.deletes(p)
	}
	w.gate.due(false)
	if len(w.gate.waiting.pods)+len(w.gate.waiting.line) > 0 {
		t.Error("pods that are gone are remembered")
	}
}

// writes has conditions checked until a batch of them had some written, and returns the pods of those, in order.
func (w *gateWorld) writes(pods ...*v1.Pod) (written []string) {
	client := clientsetfake.NewClientset()
	for _, p := range pods {
		if err := client.Tracker().Add(p); err != nil {
			w.t.Fatal(err)
		}
	}
	s := &scheduler{gate: w.gate, pods: corelisters.NewPodLister(w.store), recorders: map[string]events.EventRecorder{pods[0].Spec.SchedulerName: events.NewFakeRecorder(1000)}}
	for any := true; any && len(client.Actions()) == 0; {
		var held []waitingPod
		held, any = w.gate.takeConditions()
		for i := range held {
			s.updateCondition(w.t.Context(), client, &held[i])
		}
	}
	for _, action := range client.Actions() {
		written = append(written, action.(clienttesting.PatchAction).GetName())
	}
	return written
}

func TestAPodThatLooksLikeALackOfNodesDoesNotWaitBehindOtherConditions(t *testing.T) {
	w := limited(t, limit("root", "cpu", 0))
	pods := []*v1.Pod{}
	for i := range 100 {
		pods = append(pods, in("", fmt.Sprint("p", i), 0, 1).Obj())
		w.shows(pods[i])
		w.admits(pods[i])
	}
	w.clock.Step(time.Second)
	late := unschedulable(in("", "late", 0, 1).Obj(), "0/3 nodes are available: 3 Insufficient cpu.")
	w.shows(late)
	w.admits(late)
	w.clock.Step(conditionSettle)

	if written := w.writes(append(pods, late)...); len(written) != conditionBatch || written[0] != late.Name {
		t.Errorf("written: %v", written)
	}
}

func TestUrgentConditionsDoNotStarveTheOthers(t *testing.T) {
	w := limited(t, limit("root", "cpu", 0))
	pods := []*v1.Pod{in("", "other", 0, 1).Obj()}
	for i := range 100 {
		pods = append(pods, unschedulable(in("", fmt.Sprint("urgent", i), 0, 1).Obj(), "0/3 nodes are available: 3 Insufficient cpu."))
	}
	for _, p := range pods {
		w.shows(p)
		w.admits(p)
	}
	w.clock.Step(time.Second)

	if written := w.writes(pods...); len(written) > conditionBatch || !slices.Contains(written, "other") {
		t.Errorf("not in the first batch: %v", written)
	}
}

func TestConditionsThatSaySoAlreadyTakeNoTurnFromOthers(t *testing.T) {
	w := limited(t, limit("root", "cpu", 0))
	pods := []*v1.Pod{}
	for i := range 100 {
		p := in("", fmt.Sprint("p", i), 0, 1).Obj()
		p.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reasonQueueFull, Message: "queue root: cpu 0 of 0 used, 1m asked",
		}}
		pods = append(pods, p)
	}
	late := in("", "late", 0, 1).Obj()
	for _, p := range append(pods, late) {
		w.shows(p)
		w.admits(p)
		w.clock.Step(time.Millisecond)
	}
	w.clock.Step(conditionSettle)

	if written := w.writes(append(pods, late)...); !slices.Equal(written, []string{late.Name}) {
		t.Errorf("written: %v", written)
	}
}

func TestAPodThatIsRejectedAgainKeepsTheTurnOfItsCondition(t *testing.T) {
	w := limited(t, limit("root", "cpu", 0))
	p := in("", "p", 0, 1).Obj()
	w.shows(p)
	w.admits(p)
	w.clock.Step(conditionSettle / 2)
	w.admits(p)
	w.clock.Step(conditionSettle / 2)

	if held, _ := w.gate.takeConditions(); len(held) != 1 || held[0].pod.UID != string(p.UID) {
		t.Errorf("%v are due", held)
	}
}

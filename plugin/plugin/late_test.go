package plugin

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// lateWorld is a world whose planner answers when told to, with what then says, and whose cycles wait for a moment.
func lateWorld(t *testing.T, then func(*wire.PlanRequest) (*wire.PlanReply, error)) (w *world, p *v1.Pod, answer chan struct{}) {
	t.Helper()
	w, p, _ = simple(t, setup{leastWait: time.Millisecond}, nil)
	if then == nil {
		then = w.bus.plan
	}
	answer = make(chan struct{})
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return then(request)
	}
	return w, p, answer
}

// isLate runs a cycle that must end without an answer.
func (w *world) isLate(pod *v1.Pod) {
	w.t.Helper()
	result, status := w.cycle(pod)
	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() != "makeway: the planner's answer is awaited" {
		w.t.Fatalf("result %+v, status %v", result, status)
	}
	if w.plugin.engine.planner.Late.Of(pod.UID) == nil {
		w.t.Fatal("its question is not kept")
	}
}

func TestAnAnswerThatIsLateIsUsedInThePodsNextCycle(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	w.isLate(p)
	w.isLate(p) // still

	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })

	w.nominated(p, "n1")
	if asked := len(w.bus.planRequests()); asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	if w.plugin.engine.planner.Late.Of(p.UID) != nil {
		t.Error("the answer is kept")
	}
}

func TestWhileAnAnswerIsAwaitedThePodsConditionStaysAsItIs(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	defer close(answer)
	shown := p.DeepCopy()
	shown.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient cpu. makeway: no node can be freed",
	}}
	if _, err := w.client.CoreV1().Pods(p.Namespace).UpdateStatus(w.ctx, shown, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it shows", func() bool {
		return len(w.plugin.engine.podOf(wire.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}).Status.Conditions) == 1
	})

	if _, status := w.cycle(p); status.Message() != "makeway: no node can be freed" {
		t.Errorf("status %v", status)
	}
}

func TestALateAnswerOfSomethingElseIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(*world, *v1.Pod){
		"the policy has changed": func(w *world, _ *v1.Pod) {
			w.tells(enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "other" }), at(1))
		},
		"the brake was set and released": func(w *world, _ *v1.Pod) {
			w.plugin.engine.control.SetBrake(w.ctx, nil)
		},
		"the pod has changed": func(w *world, p *v1.Pod) {
			p.Generation++
			if _, err := w.client.CoreV1().Pods(p.Namespace).Update(w.ctx, p, metav1.UpdateOptions{}); err != nil {
				w.t.Fatal(err)
			}
			w.eventually("it shows", func() bool {
				pod, err := w.plugin.engine.cluster.pods.Pods(p.Namespace).Get(p.Name)
				return err == nil && pod.Generation == p.Generation
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, answer := lateWorld(t, nil)
			w.isLate(p)

			change(w, p)
			close(answer)

			w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) > 0 })
			w.plugin.engine.planner.Least = time.Second
			w.nominated(p, "n1")
			if asked := len(w.bus.planRequests()); asked != 2 {
				t.Errorf("asked %d times, want once more", asked)
			}
		})
	}
}

func TestALateAnswerIsNotUsedWhereThePolicyChangesWhileItsCycleWaits(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	asked, changed := w.bus.plan, make(chan struct{})
	w.plugin.engine.planner.Least = time.Second
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		w.tells(enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "other" }), at(1))
		close(changed)
		return asked(request)
	}
	w.isLate(p)
	<-changed
	w.bus.mu.Lock()
	w.bus.plan = asked
	w.bus.mu.Unlock()

	close(answer)

	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) > 0 })
	w.nominated(p, "n1")
	if asked := len(w.bus.planRequests()); asked != 2 {
		t.Errorf("asked %d times, want once more", asked)
	}
}

func TestALateAnswerAboutAPodThatIsGoneIsDropped(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	w.isLate(p)

	w.delete(p)
	w.eventually("it is dropped", func() bool { return w.plugin.engine.planner.Late.Of(p.UID) == nil })
	close(answer)

	time.Sleep(20 * time.Millisecond)
	if w.activator.of(p.UID) != 0 {
		t.Error("a pod that is gone is tried again")
	}
}

func TestAPodWhoseAnswerIsLostIsTriedAgainAndAskedAboutAnew(t *testing.T) {
	w, p, answer := lateWorld(t, silent)
	w.isLate(p)

	close(answer)

	w.eventually("it is not waited for any more", func() bool { return w.plugin.engine.planner.Late.Of(p.UID) == nil })
	w.eventually("it is tried again in time", func() bool { return w.plugin.engine.memory.Retries.Count() == 1 })
	if state, _ := w.plugin.engine.planner.Pods.Current(); state != telemetry.Open {
		t.Errorf("the breaker is in state %d", state)
	}
}

func TestASchedulerThatStartsAnewKnowsOfNoLateAnswer(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	w.isLate(p)
	close(answer)

	after, _, _ := simple(t, setup{}, nil)

	if after.plugin.engine.planner.Late.Of(p.UID) != nil {
		t.Error("it is kept")
	}
	after.nominated(p, "n1")
	if asked := len(after.bus.planRequests()); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestALateAnswerIsKeptForSecondsInWhichItsPodIsActivatedAgain(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	w.plugin.engine.planner.Late.Lasts = ask.UsedWithin
	w.isLate(p)
	close(answer)
	w.eventually("it has come", func() bool { return w.activator.of(p.UID) == 1 })

	w.eventually("it is dropped", func() bool { return w.plugin.engine.planner.Late.Of(p.UID) == nil })
	if activated := w.activator.of(p.UID); activated < 3 {
		t.Errorf("activated %d times", activated)
	}
	if !w.plugin.engine.planner.Late.Crowded(p.Namespace, time.Now()) {
		t.Error("it went unused, and cycles wait no longer")
	}
}

func TestALateAnswerThatThePodsNextCycleDoesNotComeToIsKeptNoLonger(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	w.isLate(p)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })
	w.plugin.engine.planner.Commits.Silent(time.Now())

	if _, status := w.cycle(p); !strings.Contains(status.Message(), notStored) {
		t.Fatalf("status %v", status)
	}

	if w.plugin.engine.planner.Late.Of(p.UID) != nil {
		t.Error("it is kept, and the pod activated each second")
	}
}

func TestAPodWhoseAnswerIsAwaitedKeepsTheRoomInItsQueue(t *testing.T) {
	p, less := queuedPod("root.a", "p", "", high, "200"), queuedPod("root.a", "less", "", low, "200")
	w := queued(t, p, less, queuedPod("root.b", "v", "n1", low, "500"))
	w.plugin.engine.planner.Least = time.Millisecond
	answer := make(chan struct{})
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return answers(candidate("n1", "!v"))(nil)
	}
	if w.held(p) {
		t.Fatal("its queue holds it")
	}

	w.isLate(p)

	if !w.held(less) {
		t.Error("a less important pod takes the room")
	}
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })
	if w.held(p) {
		t.Error("its queue holds it")
	}
	w.nominated(p, "n1")
}

func TestAPlannerThatIsAwayIsNotWaitedForUntilItAnswersAProbe(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil) // a cycle waits longer than any test
	back := w.bus.plan
	w.bus.plan = silent
	w.cycle(p)
	answer := make(chan struct{})
	w.bus.mu.Lock()
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return back(request)
	}
	w.bus.mu.Unlock()
	w.eventually("a probe is due", func() bool { return w.plugin.engine.planner.Pods.Attempts(1) == 1 })

	_, status := w.cycle(p) // it would not return before the answer has come

	if status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "it is asked, and not waited for") {
		t.Errorf("status %v", status)
	}
	before := w.activator.of(p.UID)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) > before })
	w.nominated(p, "n1")
	if asked := len(w.bus.planRequests()); asked != 2 {
		t.Errorf("asked %d times, want one probe", asked)
	}
}

func TestACycleWaitsAsLongAsItsFiltersTook(t *testing.T) {
	w, p, _ := simple(t, setup{leastWait: time.Millisecond, filter: true}, nil)
	back := w.bus.plan
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		time.Sleep(20 * time.Millisecond)
		return back(request)
	}

	state := w.begin(p)
	time.Sleep(2 * time.Second) // in which the filters run
	if result, status := w.plugin.PostFilter(w.ctx, state, p, rejecting()); nominatedNode(result, status) != "n1" {
		t.Errorf("result %+v, status %v", result, status)
	}
}

func TestALateAnswerAboutAGangIsUsedInItsNextCycle(t *testing.T) {
	w, c := gangWorld(t, setup{leastWait: time.Millisecond}, 2, 2, gangMember("g1"), gangMember("g2"))
	answer, then := make(chan struct{}), plans(gangPlan("n1", "n2"))
	w.bus.group = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return then(request)
	}
	if _, status := w.gang(c); status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() != "makeway: the planner's answer is awaited" {
		t.Fatalf("status %v", status)
	}

	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of("g1") > 0 })

	if _, status := w.gang(c); !status.IsSuccess() || len(w.bus.asked) != 1 {
		t.Errorf("status %v, asked %d times", status, len(w.bus.asked))
	}
}

func TestALateAnswerOfWhoHasFoundRoomIsDropped(t *testing.T) {
	for name, finds := range map[string]func(*world, *v1.Pod){
		"assumed": func(w *world, p *v1.Pod) { w.plugin.Reserve(w.ctx, framework.NewCycleState(), p, "n1") },
		"bound":   (*world).bind,
	} {
		t.Run(name, func(t *testing.T) {
			w, c := gangWorld(t, setup{leastWait: time.Millisecond}, 2, 1, gangMember("g1"))
			answer, then := make(chan struct{}), plans(gangPlan("n1"))
			w.bus.group = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
				<-answer
				return then(request)
			}
			w.gang(c)
			finds(w, c.group.Waiting[0])
			w.eventually("it shows", func() bool { return !w.plugin.engine.placements.Pending("g1") })
			close(answer)

			w.eventually("it is dropped", func() bool { return w.plugin.engine.planner.Late.Of(c.group.UID) == nil })

			if w.activator.of("g1") != 0 {
				t.Error("it is tried again")
			}
		})
	}
}

func TestALateAnswerAboutAGangOfOtherMembersIsNotUsed(t *testing.T) {
	w, c := gangWorld(t, setup{leastWait: time.Millisecond}, 2, 1, gangMember("g1"), gangMember("g2"))
	answer, then := make(chan struct{}), plans(gangPlan("n1"))
	w.bus.group = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return then(request)
	}
	w.gang(c)
	c.group.Waiting = c.group.Waiting[:1]
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of("g1") > 0 })
	w.plugin.engine.planner.Least = time.Second

	if _, status := w.gang(c); !status.IsSuccess() || len(w.bus.asked) != 2 {
		t.Errorf("status %v, asked %d times", status, len(w.bus.asked))
	}
}

func TestALateAnswerThatFailsVerificationIsAskedForAgainAndSaysNothingOfItsNodes(t *testing.T) {
	w, p, answer := lateWorld(t, nil)
	plan, asked := w.bus.plan, 0
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		made, err := plan(request)
		if err != nil {
			return nil, err
		}
		reply := *made
		if asked++; asked == 1 {
			reply.Candidates = []wire.Candidate{{Node: reply.Candidates[0].Node}} // the pod does not fit without a victim
		}
		return &reply, nil
	}
	w.isLate(p)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })

	var status *fwk.Status
	w.eventually("the fresh answer is used", func() bool {
		_, status = w.cycle(p)
		return status.Code() != fwk.UnschedulableAndUnresolvable
	})

	if status.Code() != fwk.Success || asked != 2 {
		t.Errorf("asked %d times, status %v", asked, status)
	}
}

func TestAPodThatALateAnswerRefusesIsTriedAgain(t *testing.T) {
	w, p, answer := lateWorld(t, func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NoLowerPriorityPods", Message: "no pod of lower priority"}}, nil
	})
	w.isLate(p)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })

	_, status := w.cycle(p)

	if !strings.Contains(status.Message(), "no pod of lower priority") || w.plugin.engine.memory.Retries.Count() != 1 {
		t.Errorf("status %v, %d pods are tried again", status, w.plugin.engine.memory.Retries.Count())
	}
}

func TestAPodIsNotAskedAboutWhereItsAnswerWouldBeLateAndNotBeKept(t *testing.T) {
	for took, asked := range map[time.Duration]int{time.Millisecond: 1, time.Minute: 0} {
		w, p, _ := simple(t, setup{}, nil)
		w.plugin.engine.planner.Late = ask.NewLate(0)
		w.plugin.engine.planner.Pods.Took(took)

		_, status := w.cycle(p)

		if got := len(w.bus.planRequests()); got != asked {
			t.Errorf("answers take %s: asked %d times, want %d", took, got, asked)
		}
		if asked == 0 && (status.Code() != fwk.UnschedulableAndUnresolvable || w.plugin.engine.memory.Retries.Count() != 1) {
			t.Errorf("status %v, %d pods are tried again", status, w.plugin.engine.memory.Retries.Count())
		}
	}
}

func TestAMoreImportantPodTakesThePlaceOfALateAnswerWhosePodIsTriedAgain(t *testing.T) {
	less, more := pod("less", "", mid, whole).Obj(), pod("more", "", high, whole).Obj()
	w := newWorld(t, setup{leastWait: time.Millisecond}, []*v1.Node{node("n1")}, less, more, pod("v", "n1", low, whole).Obj())
	w.plugin.engine.planner.Late = ask.NewLate(1)
	answer := make(chan struct{})
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return answers(candidate("n1", "!v"))(nil)
	}
	w.isLate(less)
	w.isLate(more)

	if w.plugin.engine.planner.Late.Of(less.UID) != nil || w.plugin.engine.memory.Retries.Unplanned(less.UID) != 1 {
		t.Error("the less important pod keeps its place, or is not tried again")
	}
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(more.UID) == 1 })
	w.nominated(more, "n1")
}

func TestALateRefusalThatIsWrongByNowRaisesNoAlarmAndHasThePodTriedInFull(t *testing.T) {
	w, p, answer := lateWorld(t, refusesWith(candidate("n1", "a")))
	w.isLate(p)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })
	counted := func(result string) float64 { return ownMetric(t, "makeway_scheduler_refusal_samples_total", result) }
	missed, undecided := counted(sampleMissed), counted(sampleUndecided)

	_, status := w.cycle(p)

	if status.Code() != fwk.Unschedulable || !w.plugin.engine.verified.samples.Full(time.Now(), p.UID) {
		t.Errorf("status %v", status)
	}
	if counted(sampleMissed) != missed || counted(sampleUndecided) != undecided+1 {
		t.Error("it counts as wrong")
	}
}

func TestACycleWaitsAsLongAsAnotherOneWouldCost(t *testing.T) {
	const filters, least, most = 30 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond
	w, _, _ := simple(t, setup{leastWait: least}, nil)
	for took, want := range map[time.Duration]time.Duration{0: least, filters: filters + least, most: most} {
		p := &preemptor{MakeWay: w.plugin, pods: []*v1.Pod{{}}}
		p.waitFor(w.plugin.engine.planner.Pods, "", took, most)
		if p.patience != want {
			t.Errorf("filters took %s: it waits %s, not %s", took, p.patience, want)
		}
	}
}

func TestCyclesWaitLongerWhileAnswersThatAreKeptGoUnused(t *testing.T) {
	const least = time.Millisecond
	w, p, answer := lateWorld(t, nil)
	defer close(answer)
	waits := func() time.Duration {
		one := &preemptor{MakeWay: w.plugin, pods: []*v1.Pod{p}}
		one.waitFor(w.plugin.engine.planner.Pods, "", 0, time.Second)
		return one.patience
	}
	w.plugin.engine.planner.Late = ask.NewLate(0) // there is room for none

	before := waits()
	w.cycle(p)
	crowded := waits()

	if before != least || crowded != ask.CrowdedWait {
		t.Errorf("it waits %s, and %s while answers go unused", before, crowded)
	}
	if w.plugin.engine.planner.Late.Crowded(p.Namespace, time.Now().Add(time.Minute)) {
		t.Error("it waits longer a minute after the last that went unused")
	}
	if w.plugin.engine.planner.Late.Crowded("another", time.Now()) {
		t.Error("pods of another namespace wait longer, too")
	}
	w.plugin.engine.planner.Pods.Took(time.Minute)
	if slow := waits(); slow != least {
		t.Errorf("it waits %s while answers take longer", slow)
	}
}

// untilPlaced runs a preemptor's cycles, each question of which is answered after the cycle alone, until one nominates it; so many at most.
func (w *world) untilPlaced(uid types.UID, most int, answer chan<- struct{}, cycle func() *fwk.Status) (cycles int) {
	w.t.Helper()
	for cycles < most {
		cycles++
		if cycle().IsSuccess() {
			return cycles
		}
		if asked := w.plugin.engine.planner.Late.Of(uid); asked != nil {
			answer <- struct{}{}
			<-asked.Answered()
		}
	}
	w.t.Fatalf("nominated in none of %d cycles", most)
	return cycles
}

func TestAPodWhoseAnswersAreAllLateComesToANodeThatManyOthersRankBefore(t *testing.T) {
	w, p := fullNodes(t, 12, licensed{nodes: []string{"n11"}})
	answer, ranks := make(chan struct{}), w.bus.plan
	w.plugin.engine.planner.Least = time.Millisecond
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return ranks(request)
	}

	w.untilPlaced(p.UID, 10, answer, func() *fwk.Status {
		w.plugin.engine.verified.budget = &verify.Budget{} // the time has passed that pays for the cycle before
		_, status := w.cycle(p)
		return status
	})

	expectVictims(t, w.entry(p.UID), "on-n11")
	if len(w.plugin.failedBefore(func() string { return verify.ClassOf(p) })) > 0 {
		t.Error("what a late answer says of nodes holds for pods like it")
	}
}

func TestALateAnswerIsUsedThoughOthersHaveUsedUpTheTimeForVerification(t *testing.T) {
	w, p := fullNodes(t, 2, licensed{nodes: []string{"n00"}})
	answer, ranks := make(chan struct{}), w.bus.plan
	w.plugin.engine.planner.Least = time.Millisecond
	w.bus.plan = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return ranks(request)
	}
	generation, _ := w.plugin.generationOf("n01")
	w.plugin.engine.verified.failures.Add(time.Now(), verify.ClassOf(p), "n01", verify.Failure{Cause: verify.CauseFilters}, generation)
	w.isLate(p)

	w.plugin.engine.verified.budget.Spent(time.Now(), time.Minute)
	close(answer)
	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) == 1 })

	expectVictims(t, w.nominated(p, "n00"), "on-n00")
}

func TestALateAnswerAboutAGangThatFailsVerificationIsAskedForAgainAndSaysNothingOfItsNodes(t *testing.T) {
	w, c := gangWorld(t, setup{leastWait: time.Millisecond}, 2, 1, gangMember("g1"))
	answer := make(chan struct{})
	w.bus.group = func(q *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		plan := gangPlan("n1")
		if len(q.Classes[0].Nodes.Names) > 0 {
			plan = gangPlan("n2")
		}
		if len(w.bus.asked) == 1 {
			plan.Victims = nil // another has been nominated there since
		}
		return &wire.PlanReply{Plan: plan}, nil
	}

	cycles := w.untilPlaced(c.group.UID, 4, answer, func() *fwk.Status {
		_, status := w.gang(c)
		return status
	})

	if node := w.entry(c.group.UID).Places()[0].Node; node != "n1" || cycles != 3 {
		t.Errorf("on %s after %d cycles", node, cycles)
	}
}

func TestANodeWhereLateAnswersAboutAGangFailAgainIsLeftOut(t *testing.T) {
	w, c := gangWorld(t, setup{leastWait: time.Millisecond}, 2, 1, gangMember("g1"))
	answer := make(chan struct{})
	w.bus.group = func(q *wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		if len(q.Classes[0].Nodes.Names) > 0 {
			return &wire.PlanReply{Plan: gangPlan("n2")}, nil
		}
		wrong := gangPlan("n1")
		wrong.Victims = nil
		return &wire.PlanReply{Plan: wrong}, nil
	}

	w.untilPlaced(c.group.UID, 5, answer, func() *fwk.Status {
		_, status := w.gang(c)
		return status
	})

	if node := w.entry(c.group.UID).Places()[0].Node; node != "n2" {
		t.Errorf("on %s", node)
	}
}

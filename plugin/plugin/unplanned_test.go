package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/wire"
)

// nominatedNode is the node of a nomination, empty where there is none.
func nominatedNode(result *fwk.PostFilterResult, status *fwk.Status) string {
	if !status.IsSuccess() || result == nil {
		return ""
	}
	return result.NominatedNodeName
}

// restricting is a control state by which something restricts preemption.
func restricting(change func(*wire.Unplanned)) *wire.ControlState {
	return enforcing(1, func(s *wire.ControlState) {
		s.Unplanned.Restricting = []string{"limits"}
		if change != nil {
			change(s.Unplanned)
		}
	})
}

// stored is a ConfigMap of makeway's with one text.
func stored(name, key, text string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "makeway-system"}, Data: map[string]string{key: text}}
}

func tolerant(name string, annotations map[string]string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Value: 1}
}

func TestWhatRestrictsPreemptionAndForWhom(t *testing.T) {
	const system = control.SystemPriority
	protecting := []string{"protection.namespaces", "hardBudgetNamespaces"}
	for name, test := range map[string]struct {
		told     wire.Unplanned
		priority int32
		why      string // empty: kube-scheduler's own preemption acts
	}{
		"nothing":                            {},
		"nothing, though hold is said":       {told: wire.Unplanned{Default: wire.WhenUnplannedHold, System: wire.WhenUnplannedHold}, priority: system},
		"a limit":                            {told: wire.Unplanned{Restricting: []string{"limits"}}, why: "preemption is restricted by limits, and whenUnplanned.default of the policy is hold"},
		"several":                            {told: wire.Unplanned{Restricting: []string{"limits", "queues"}}, priority: system - 1, why: "restricted by limits, queues, and whenUnplanned.default"},
		"a limit, for a system pod":          {told: wire.Unplanned{Restricting: []string{"limits"}}, priority: system},
		"a limit, and system is hold":        {told: wire.Unplanned{Restricting: []string{"limits"}, System: wire.WhenUnplannedHold}, priority: system, why: "whenUnplanned.system of the policy is hold"},
		"a limit, and default is fallback":   {told: wire.Unplanned{Restricting: []string{"limits"}, Default: wire.WhenUnplannedFallback}},
		"protected pods":                     {told: wire.Unplanned{Protecting: protecting}, why: "pods are protected by protection.namespaces, hardBudgetNamespaces"},
		"protected pods, for a system pod":   {told: wire.Unplanned{Protecting: protecting}, priority: system, why: "pods are protected by"},
		"protected pods, though fallback is": {told: wire.Unplanned{Protecting: protecting, Default: wire.WhenUnplannedFallback}, why: "pods are protected by"},
	} {
		t.Run(name, func(t *testing.T) {
			found := unplannedOf(control.Restrictions{Unplanned: test.told}, test.priority)

			if test.why == "" && found != leftToOthers || test.why != "" && (found.result != unplannedRestricted || !strings.Contains(found.why, test.why)) {
				t.Errorf("got %+v", found)
			}
		})
	}
}

func TestWhatIsKnownOfRestrictionsWithAndWithoutAPlannersWord(t *testing.T) {
	policy, queues := stored("makeway-policy", "policy.yaml", "protection: {}"), stored("makeway-queues", "queues.yaml", "partitions: []")
	steady := tolerant("steady", map[string]string{"preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "-1"})
	digest := sha256.Sum256([]byte("protection: {}"))
	current := func(change func(*wire.ControlState)) *wire.ControlState {
		return enforcing(1, func(s *wire.ControlState) {
			s.PolicyRevision = "sha256:" + hex.EncodeToString(digest[:])[:16]
			change(s)
		})
	}
	unchanged := func(*wire.ControlState) {}
	for name, test := range map[string]struct {
		objects []runtime.Object
		args    func(*MakeWayArgs)
		told    *wire.ControlState
		noted   *wire.ControlState
		result  string
		why     string
	}{
		"nothing is there, and nothing told":      {result: unplannedLeft},
		"no policy is configured":                 {objects: []runtime.Object{policy}, args: func(a *MakeWayArgs) { a.PolicyConfigMap.Name = "" }, result: unplannedLeft},
		"a policy that no planner has told":       {objects: []runtime.Object{policy}, result: unplannedUnknown, why: "no planner has reported what ConfigMap makeway-system/makeway-policy says"},
		"queues that no planner has told":         {objects: []runtime.Object{queues}, result: unplannedUnknown, why: "no planner has reported what ConfigMap makeway-system/makeway-queues says"},
		"a class tolerates, and nothing is told":  {objects: []runtime.Object{steady}, result: unplannedRestricted, why: "restricted by PriorityClass steady"},
		"a class tolerates, and is not told":      {objects: []runtime.Object{steady}, told: enforcing(1, nil), result: unplannedRestricted, why: "restricted by PriorityClass steady"},
		"a class tolerates, and another was told": {objects: []runtime.Object{steady}, told: restricting(func(u *wire.Unplanned) { u.Restricting = []string{"PriorityClass calm"} }), result: unplannedRestricted, why: "restricted by PriorityClass calm, and"},
		"the policy as it was told":               {objects: []runtime.Object{policy}, told: current(unchanged), result: unplannedLeft},
		"another policy was told":                 {objects: []runtime.Object{policy}, told: enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "sha256:00ff" }), result: unplannedUnknown, why: "makeway-policy has changed, and no planner has reported what it says"},
		"other queues were told": {objects: []runtime.Object{queues}, told: enforcing(1, func(s *wire.ControlState) {
			s.QueuesRevision = "sha256:00ff"
			s.Queues = []wire.QueueLimit{{Path: "root"}}
		}), result: unplannedUnknown, why: "makeway-queues has changed"},
		"the policy was told, and is gone":        {told: restricting(nil), result: unplannedRestricted, why: "restricted by limits"},
		"a planner that does not tell":            {told: enforcing(1, func(s *wire.ControlState) { s.Unplanned = nil }), result: unplannedUnknown, why: "its planner is of an older version"},
		"the Lease says it":                       {objects: []runtime.Object{policy}, noted: current(unchanged), result: unplannedLeft},
		"the Lease says that something restricts": {objects: []runtime.Object{policy}, noted: current(func(s *wire.ControlState) { s.Unplanned.Protecting = []string{"protection.namespaces"} }), result: unplannedRestricted, why: "protection.namespaces"},
		"the Lease says it of another policy":     {objects: []runtime.Object{policy}, noted: enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "sha256:00ff" }), result: unplannedUnknown, why: "has changed"},
		"the Lease says mode observe": {noted: enforcing(1, func(s *wire.ControlState) {
			s.Mode = wire.ModeObserve
			s.Unplanned.Protecting = []string{"protection.namespaces"}
		}), result: unplannedLeft},
		"the Lease is of another cluster": {noted: enforcing(1, func(s *wire.ControlState) {
			s.ClusterUID = "other"
			s.Unplanned.Protecting = []string{"protection.namespaces"}
		}), result: unplannedLeft},
		"NATS has said it since": {noted: restricting(nil), told: enforcing(1, nil), result: unplannedLeft},
	} {
		t.Run(name, func(t *testing.T) {
			if test.noted != nil {
				text, err := json.Marshal(test.noted)
				if err != nil {
					t.Fatal(err)
				}
				test.objects = append(test.objects, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
					Namespace: "makeway-system", Name: "makeway-planner", Annotations: map[string]string{"makeway.dev/unplanned": string(text)},
				}})
			}
			w, p, _ := simple(t, setup{objects: test.objects, args: test.args}, nil)
			w.plugin.engine.control.ReadLease(w.ctx)
			if test.told != nil {
				w.tells(test.told, at(1))
			}
			w.eventually("the PriorityClasses are looked at", func() bool {
				return len(test.objects) == 0 || test.objects[0] != runtime.Object(steady) || len(w.plugin.engine.control.Restrictions().Restricting) > 0
			})

			if found := w.plugin.withoutPlan(p.Namespace, high); found.result != test.result || !strings.Contains(found.why, test.why) {
				t.Errorf("got %+v", found)
			}
		})
	}
}

func TestAChangeIsKnownBeforeAPlannerTellsOfIt(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.tells(enforcing(1, nil), at(1))
	result := func() string { return w.plugin.withoutPlan(p.Namespace, high).result }
	policies, classes := w.client.CoreV1().ConfigMaps("makeway-system"), w.client.SchedulingV1().PriorityClasses()
	if result() != unplannedLeft {
		t.Fatal("something restricts preemption")
	}

	if _, err := policies.Create(w.ctx, stored("makeway-policy", "policy.yaml", "protection: {}"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the policy holds", func() bool { return result() == unplannedUnknown })
	if err := policies.Delete(w.ctx, "makeway-policy", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is gone", func() bool { return result() == unplannedLeft })
	if _, err := classes.Create(w.ctx, tolerant("steady", map[string]string{"preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "5"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the class holds", func() bool { return result() == unplannedRestricted })
	if err := classes.Delete(w.ctx, "steady", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is gone", func() bool { return result() == unplannedLeft })
}

func TestWhatCannotBeReadHolds(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "makeway-policy", nil)
	w, p, _ := simple(t, setup{unlistable: forbidden}, nil)
	w.tells(enforcing(1, nil), at(1))

	w.eventually("it is told", func() bool {
		found := w.plugin.withoutPlan(p.Namespace, high)
		return found.result == unplannedUnknown && strings.Contains(found.why, "makeway-policy cannot be read")
	})
}

// The rows of docs/without-a-plan.md that a scheduler decides by itself. Each is left to the plugins after MakeWay where nothing restricts
// preemption, in mode observe, and in mode off, and held else.
func TestEachPodWithoutAPlanIsLeftToOthersOnlyWhereNothingRestrictsPreemption(t *testing.T) {
	placed := func(p *st.PodWrapper) { p.Node("n1") }
	grouped := func(p *st.PodWrapper) { joinGroup(&p.Pod, "g") }
	for name, kind := range map[string]struct {
		change  func(*st.PodWrapper)
		message string
	}{
		"no planner answers":        {message: "no planner answers"},
		"a resize on its node":      {change: placed, message: "the resize of a pod on its node has no plan"},
		"a group, without the hook": {change: grouped, message: "pods of a scheduling group have no plan"},
	} {
		for state, test := range map[string]struct {
			told  *wire.ControlState
			brake map[string]string
			held  string // empty: it is left to others
		}{
			"nothing restricts": {told: enforcing(1, nil)},
			"a limit":           {told: restricting(nil), held: "restricted by limits, and whenUnplanned.default of the policy is hold"},
			"mode observe": {told: enforcing(1, func(s *wire.ControlState) {
				s.Mode, s.Unplanned.Protecting = wire.ModeObserve, []string{"protection.namespaces"}
			})},
			"mode off in its namespace": {told: enforcing(1, func(s *wire.ControlState) {
				s.NamespaceModes, s.Unplanned.Protecting = map[string]string{"default": wire.ModeOff}, []string{"protection.namespaces"}
			})},
			"the brake": {told: enforcing(1, nil), brake: map[string]string{"mode": wire.ModeOff}, held: "the brake is set (everywhere)"},
		} {
			t.Run(name+", "+state, func(t *testing.T) {
				w, p, _ := simple(t, setup{}, kind.change)
				w.bus.plan = nil
				w.tells(test.told, at(1))
				if test.brake != nil {
					w.plugin.engine.control.SetBrake(w.ctx, control.ParseBrake(test.brake))
				}

				result, status := w.cycle(p)

				if test.held == "" {
					if result != nil || status.Code() != fwk.Unschedulable {
						t.Errorf("result %+v, status %v, want (nil, Unschedulable)", result, status)
					}
					return
				}
				if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "nothing is evicted without a plan: ") ||
					!strings.Contains(status.Message(), test.held) || test.brake == nil && !strings.Contains(status.Message(), kind.message) {
					t.Errorf("result %+v, status %v", result, status)
				}
				if p.Spec.NodeName == "" && w.plugin.engine.memory.Retries.Count() != 1 {
					t.Error("it is not tried again")
				}
			})
		}
	}
}

// Each ending by its name; those that have the pod go on are never held.
func TestEveryEndingThatWouldPassThePodOnIsHeldWhereSomethingRestrictsPreemption(t *testing.T) {
	held := unplanned{unplannedRestricted, "preemption is restricted by limits"}
	for _, kind := range []outcomeKind{
		endPodGroup, endPlaced, endUnreachable, endNotSynced, endTooLarge, endUnfinished, endNotStored, endNoEvictor, endError, endPanic,
	} {
		end := preemptResult{kind: kind, message: string(kind)}
		if _, own := end.statusPair(); own.Code() != fwk.Unschedulable {
			t.Errorf("%s: status %v does not pass the pod on", kind, own)
		}
		if status := leftToOthers.status(end); status.Code() != fwk.Unschedulable || status.Message() != "makeway: "+string(kind) {
			t.Errorf("%s, left: status %v", kind, status)
		}
		status := held.status(end)
		if status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() != "makeway: "+string(kind)+"; nothing is evicted without a plan: preemption is restricted by limits" {
			t.Errorf("%s, held: status %v", kind, status)
		}
	}
}

func TestACompositeGroupIsHeldWhereSomethingRestrictsPreemptionAndTriedAgain(t *testing.T) {
	w, cycle := gangWorld(t, setup{}, 1, 1, gangMember("g1"))
	cycle.group.Composite = true
	w.tells(restricting(nil), at(1))

	if _, status := w.gang(cycle); status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "composite pod groups have no plan; nothing is evicted without a plan: preemption is restricted by limits") {
		t.Errorf("status %v", status)
	}

	w.tells(enforcing(2, nil), at(1))
	w.eventually("it is tried again", func() bool { return w.activator.of("g1") > 0 })
	if _, status := w.gang(cycle); status.Code() != fwk.Unschedulable {
		t.Errorf("status %v", status)
	}
}

func TestAPodThatIsHeldIsTriedAgainWhenNothingRestrictsPreemptionAnyMore(t *testing.T) {
	w, p, _ := simple(t, setup{}, func(p *st.PodWrapper) { joinGroup(&p.Pod, "g") })
	w.tells(restricting(nil), at(1))
	if _, status := w.cycle(p); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Fatalf("status %v", status)
	}

	w.tells(enforcing(2, nil), at(1))

	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) > 0 })
	if _, status := w.cycle(p); status.Code() != fwk.Unschedulable {
		t.Errorf("status %v", status)
	}
}

func TestAPodThatIsHeldForTheEvictorsBreakerIsTriedAgainWhenThatIsClosed(t *testing.T) {
	open := breakerOf(time.Minute, "mismatches")
	w, p, _ := simple(t, setup{objects: []runtime.Object{open}}, func(p *st.PodWrapper) { joinGroup(&p.Pod, "g") })
	w.tells(enforcing(1, nil), at(1))
	if _, status := w.cycle(p); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Fatalf("status %v", status)
	}

	closed := open.DeepCopy()
	closed.Data = map[string]string{"resetAt": time.Now().UTC().Format(time.RFC3339)}
	if _, err := w.client.CoreV1().ConfigMaps(closed.Namespace).Update(w.ctx, closed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.eventually("it is tried again", func() bool { return w.activator.of(p.UID) > 0 })
	if _, status := w.cycle(p); status.Code() != fwk.Unschedulable {
		t.Errorf("status %v", status)
	}
}

func TestAPodThatNeverPreemptsIsLeftToOthersWhateverRestrictsPreemption(t *testing.T) {
	never := v1.PreemptNever
	w, p, _ := simple(t, setup{}, func(p *st.PodWrapper) { p.Obj().Spec.PreemptionPolicy = &never })
	w.tells(restricting(nil), at(1))

	if _, status := w.cycle(p); status.Code() != fwk.Unschedulable {
		t.Errorf("status %v", status)
	}
}

func TestAPlannerThatCannotReadTheQuestionRefusesThePod(t *testing.T) {
	for name, broken := range map[string]func(*fakeBus){
		"the pod": func(b *fakeBus) {
			b.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
				return &wire.PlanReply{Status: wire.StatusNotSynced, Refusal: &wire.Refusal{Reason: "MalformedPod", Message: "quantity"}}, nil
			}
		},
		"the request": func(b *fakeBus) {
			b.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
				return &wire.PlanReply{Status: wire.StatusNotSynced, Refusal: &wire.Refusal{Reason: "MalformedRequest", Message: "too deep"}}, nil
			}
		},
		"the answer cannot be read": func(b *fakeBus) { b.raw = func(*wire.PlanRequest) []byte { return []byte("{") } },
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			broken(w.bus)

			result, status := w.cycle(p)

			if result == nil || result.NominatedNodeName != "" || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "cannot be read") && !strings.Contains(status.Message(), "cannot read") {
				t.Errorf("result %+v, status %v", result, status)
			}
		})
	}
}

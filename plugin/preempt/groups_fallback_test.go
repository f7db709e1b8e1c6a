package preempt

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/rules"
	"makeway.dev/makeway/plugin/wire"
)

// classOf is a PriorityClass with annotations.
func classOf(annotations map[string]string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "steady", Annotations: annotations}, Value: 1}
}

func TestTheFallbackEvictsForAGroupOnlyWhereNoRuleCouldSayNo(t *testing.T) {
	minimum := int32(1000)
	nothing := ruling(&wire.Rules{})
	configured := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "makeway-system", Name: "makeway-policy"}}
	for name, test := range map[string]struct {
		state   *wire.ControlState
		args    func(*MakeWayArgs)
		objects []runtime.Object
		want    string // empty: kube-scheduler's own preemption may act
	}{
		"no rule":                     {state: nothing},
		"a limit of victims alone":    {state: limiting(1)},
		"a class without annotations": {state: nothing, objects: []runtime.Object{classOf(nil)}},
		"a policy and no planner":     {want: "no control state is known", objects: []runtime.Object{configured}},
		"the policy says hold":        {state: ruling(&wire.Rules{WhenUnplanned: wire.WhenUnplannedHold}), want: "whenUnplanned of the policy is hold"},
		"the argument says hold":      {state: nothing, args: func(a *MakeWayArgs) { a.WhenUnplanned = wire.WhenUnplannedHold }, want: "whenUnplanned of MakeWayArgs is hold"},
		"groups are held":             {state: ruling(&wire.Rules{GroupPreemptors: wire.GroupPreemptorsHold}), want: "groups.preemptors of the policy is hold"},
		"a protected namespace":       {state: ruling(&wire.Rules{ProtectedNamespaces: []string{"shop"}}), want: "the policy protects pods"},
		"a protected priority":        {state: ruling(&wire.Rules{MinimumPriority: &minimum}), want: "the policy protects pods"},
		"pods that say never":         {state: ruling(&wire.Rules{NeverEvictNamespaces: []string{"shop"}}), want: "the policy protects pods"},
		"hard budgets":                {state: ruling(&wire.Rules{HardBudgetNamespaces: []string{"shop"}}), want: "the policy has hard budgets"},
		"a guarantee":                 {state: guaranteeing(100), want: "queues have guarantees"},
		"a class that tolerates": {
			state: nothing, want: "pods of PriorityClass steady tolerate preemption",
			objects: []runtime.Object{classOf(map[string]string{rules.TolerationSeconds: "60"})},
		},
		"a class with a minimum": {
			state: nothing, want: "pods of PriorityClass steady tolerate preemption",
			objects: []runtime.Object{classOf(map[string]string{rules.MinimumPreemptablePriority: "1000"})},
		},
		"a planner that does not tell the rules": {
			state: enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "p" }), want: "does not say what the policy protects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g1 := gangMember("g1")
			w := newWorld(t, setup{args: test.args, objects: test.objects}, []*v1.Node{node("n1")}, g1)
			w.eventually("the PriorityClasses are read", w.plugin.engine.classesSynced)
			if test.state != nil {
				w.tells(test.state, at(1))
			}

			status := w.fallback().holdGroup(minor.Group{Namespace: "default", Name: "gang", Waiting: []*v1.Pod{g1}})

			if test.want == "" {
				if status != nil {
					t.Errorf("held: %v", status)
				}
				return
			}
			if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "the fallback evicts nothing for pod groups: ") || !strings.Contains(status.Message(), test.want) {
				t.Errorf("%v, want %q", status, test.want)
			}
		})
	}
}

func TestTheFallbackHoldsAGroupOfWhichNoMemberWaits(t *testing.T) {
	w := newWorld(t, setup{}, []*v1.Node{node("n1")})
	w.tells(ruling(&wire.Rules{}), at(1))

	status := w.fallback().holdGroup(minor.Group{Namespace: "default", Name: "gang"})

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "no member of the group waits") {
		t.Errorf("%v", status)
	}
}

func TestTheFallbackHoldsGroupsWhereNoProfileHasThePlugin(t *testing.T) {
	g1 := gangMember("g1")
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, g1)
	pl, err := newFallback(w.ctx, nil, w.framework, func() *engine { return nil })
	if err != nil {
		t.Fatal(err)
	}

	status := pl.holdGroup(minor.Group{Namespace: "default", Name: "gang", Waiting: []*v1.Pod{g1}})

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "no profile of this scheduler has the plugin MakeWay") {
		t.Errorf("%v", status)
	}
}

func TestAPanicInTheFallbackHoldsTheGroup(t *testing.T) {
	g1 := gangMember("g1")
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, g1)
	pl, err := newFallback(w.ctx, nil, w.framework, func() *engine { panic("engine") })
	if err != nil {
		t.Fatal(err)
	}

	status := pl.holdGroup(minor.Group{Namespace: "default", Name: "gang", Waiting: []*v1.Pod{g1}})

	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "a panic was recovered") {
		t.Errorf("%v", status)
	}
}

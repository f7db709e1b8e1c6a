package plugin

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// onlyOn binds a pod to a node as the DaemonSet controller does.
func onlyOn(pod *v1.Pod, node string) *v1.Pod {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "logs", Controller: &yes}}
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{named(node)},
	}}}
	return pod
}

func named(nodes ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: nodes}}}
}

// by sets the rule of every removable pod of a candidate.
func by(rule string, candidate wire.Candidate) wire.Candidate {
	for i := range candidate.Removable {
		candidate.Removable[i].Rule = rule
	}
	return candidate
}

// Case RN-8 of docs/conformance.md.
func TestAnEqualPriorityVictimOfADaemonSetPodPassesUnchanged(t *testing.T) {
	p := onlyOn(pod("p", "", low, large).Obj(), "n1")
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, large).Obj())
	w.bus.plan = answers(by(verify.RuleDaemonSetMultiple, candidate("n1", "!a")))

	expectVictims(t, w.nominated(p, "n1"), "a")
}

func TestAPodOfEqualPriorityGoesByReclaimAloneAndOnlyAnEqualOneDoes(t *testing.T) {
	for name, c := range map[string]struct {
		victim *v1.Pod
		rule   string
		goes   bool
	}{
		"an equal one":                 {pod("a", "n1", low, large).Obj(), verify.RuleReclaim, true},
		"an equal one by another rule": {pod("a", "n1", low, large).Obj(), verify.RuleLowerPriority, false},
		"a higher one":                 {pod("a", "n1", mid, large).Obj(), verify.RuleReclaim, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", low, large).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, c.victim)
			w.bus.plan = answers(by(c.rule, candidate("n1", "!a")))

			result, _ := w.cycle(p)
			if goes := result != nil && result.NominatedNodeName != ""; goes != c.goes {
				t.Errorf("it goes: %t, want %t", goes, c.goes)
			}
		})
	}
}

func TestTheOnePodThatSingleChoseGoesThoughACheaperOneMightDo(t *testing.T) {
	p := onlyOn(pod("p", "", high, small).Obj(), "n1")
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("near", "n1", mid, small).Obj(),
		pod("far", "n1", low, large).Obj(), pod("other", "n1", mid, small).Obj())
	w.bus.plan = answers(by(verify.RuleDaemonSetSingle, candidate("n1", "other", "!near", "far")))

	expectVictims(t, w.nominated(p, "n1"), "near")
}

func TestAPlannersWordAloneMakesNoPodGoForOneOfADaemonSet(t *testing.T) {
	ordinary := pod("p", "", low, large).Obj()
	for name, c := range map[string]struct{ pod, victim *v1.Pod }{
		"the pod is of no DaemonSet":       {ordinary, pod("a", "n1", low, large).Obj()},
		"the victim is of higher priority": {onlyOn(pod("p", "", low, large).Obj(), "n1"), pod("a", "n1", mid, large).Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, c.pod, c.victim)
			w.bus.plan = answers(by(verify.RuleDaemonSetSingle, candidate("n1", "!a")))

			if result, _ := w.cycle(c.pod); result != nil && result.NominatedNodeName != "" {
				t.Errorf("nominated to %s", result.NominatedNodeName)
			}
		})
	}
}

// Whoever makes a pod may write that. The planner plans for no pod that a DaemonSet controls, and an evictor asks it.
func TestAPodThatSaysThatADaemonSetControlsItIsKeptForNothing(t *testing.T) {
	for rule, p := range map[string]*v1.Pod{
		verify.RuleReclaim:         pod("p", "", low, large).Obj(),
		verify.RuleDaemonSetSingle: onlyOn(pod("p", "", low, large).Obj(), "n1"),
	} {
		w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, onlyOn(pod("a", "n1", low, large).Obj(), "n1"))
		w.bus.plan = answers(by(rule, candidate("n1", "!a")))

		expectVictims(t, w.nominated(p, "n1"), "a")
	}
}

func TestNoMorePodsGoThanThePlanAllowsWhateverTheFiltersNeed(t *testing.T) {
	for _, most := range []int{0, 2, 1} {
		p := onlyOn(pod("p", "", high, whole).Obj(), "n1")
		w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, medium).Obj(), pod("b", "n1", mid, medium).Obj())
		c := by(verify.RuleDaemonSetMultiple, candidate("n1", "b", "!a"))
		c.MaxVictims = int64(most)
		w.bus.plan = answers(c)

		result, _ := w.cycle(p)
		if nominated := result != nil && result.NominatedNodeName == "n1"; nominated != (most != 1) {
			t.Errorf("at most %d: nominated %t", most, nominated)
		}
	}
}

// Case RN-8 of docs/conformance.md, after the scheduler has lost its memory of the order.
func TestADaemonSetPodWaitsForAPreemptedPodOfItsOwnPriority(t *testing.T) {
	gone := pod("a", "n1", low, large).Obj()
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	gone.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
	for _, fromDaemonSet := range []bool{true, false} {
		p := pod("p", "", low, large).NominatedNodeName("n1").Obj()
		if fromDaemonSet {
			onlyOn(p, "n1")
		}
		w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, gone)
		w.bus.plan = answers()

		w.cycle(p)
		if asked := len(w.bus.requests) > 0; asked == fromDaemonSet {
			t.Errorf("of a DaemonSet %t: the planner was asked: %t", fromDaemonSet, asked)
		}
	}
}

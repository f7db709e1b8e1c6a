package preempt

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/internal/minor/minortest"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/rules"
	"makeway.dev/makeway/plugin/wire"
)

// fallback is the plugin of the world's profile.
func (w *world) fallback() *MakeWayFallback {
	w.t.Helper()
	pl, err := newFallback(w.ctx, nil, w.framework, func() *engine { return w.plugin.engine })
	if err != nil {
		w.t.Fatal(err)
	}
	return pl
}

// fallsBack runs a pod's filters and then the fallback's PostFilter.
func (w *world) fallsBack(pl *MakeWayFallback, pod *v1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	w.t.Helper()
	state := framework.NewCycleState()
	statuses := framework.NewDefaultNodeToStatus()
	if _, status, _ := w.framework.RunPreFilterPlugins(w.ctx, state, pod); !status.IsSuccess() {
		w.t.Fatalf("PreFilter: %v", status)
	}
	for _, n := range w.nodes {
		if status := w.framework.RunFilterPluginsWithNominatedPods(w.ctx, state, pod, n); !status.IsSuccess() {
			statuses.Set(n.Node().Name, status)
		}
	}
	return pl.PostFilter(w.ctx, state, pod, statuses)
}

// nominatedNode is the node of a nomination, empty where there is none.
func nominatedNode(result *fwk.PostFilterResult, status *fwk.Status) string {
	if !status.IsSuccess() || result == nil {
		return ""
	}
	return result.NominatedNodeName
}

func (w *world) gone(pod *v1.Pod) bool {
	_, err := w.client.CoreV1().Pods(pod.Namespace).Get(w.ctx, pod.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// ruling is a control state whose policy says this of victims.
func ruling(told *wire.Rules) *wire.ControlState {
	return enforcing(1, func(s *wire.ControlState) { s.PolicyRevision, s.Rules = "p", told })
}

// limiting is a policy that allows so many victims an order.
func limiting(victims int64) *wire.ControlState {
	state := ruling(&wire.Rules{})
	state.Limits = &wire.Limits{VictimsPerOrder: &victims}
	return state
}

func hardBudget(name, namespace string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
	}
}

// The victim that kube-scheduler prefers is on n1, another on n2.
func TestTheFallbackEvictsNoPodThatThePolicyProtects(t *testing.T) {
	steady := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "steady", Annotations: map[string]string{
		rules.MinimumPreemptablePriority: "1000", rules.TolerationSeconds: "-1",
	}}, Value: 1}
	grouped := pod("", "", low, large).Obj()
	minortest.JoinGroup(grouped, "train")
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for name, test := range map[string]struct {
		preferred func(*st.PodWrapper)
		told      *wire.Rules
		objects   []runtime.Object
		exempt    bool
	}{
		"nothing is protected": {told: &wire.Rules{}},
		"a protected namespace": {
			preferred: func(p *st.PodWrapper) { p.Namespace("payments") },
			told:      &wire.Rules{ProtectedNamespaces: []string{"payments"}}, exempt: true,
		},
		"a pod of a group": {
			preferred: func(p *st.PodWrapper) { minortest.JoinGroup(&p.Pod, "train") },
			told:      &wire.Rules{}, exempt: minor.BreaksGroup(grouped),
		},
		"another namespace is protected": {told: &wire.Rules{ProtectedNamespaces: []string{"payments"}}},
		"an annotation that is honoured": {
			preferred: func(p *st.PodWrapper) { p.Annotation(rules.NeverEvict, "true") },
			told:      &wire.Rules{NeverEvictNamespaces: []string{"default"}}, exempt: true,
		},
		"an annotation that is not honoured": {
			preferred: func(p *st.PodWrapper) { p.Annotation(rules.NeverEvict, "true") },
			told:      &wire.Rules{NeverEvictNamespaces: []string{"payments"}},
		},
		"a mirror pod": {
			preferred: func(p *st.PodWrapper) { p.Annotation(rules.Mirror, "x") }, told: &wire.Rules{}, exempt: true,
		},
		"a class that tolerates preemption": {
			preferred: func(p *st.PodWrapper) { p.Obj().Spec.PriorityClassName = "steady" },
			told:      &wire.Rules{}, objects: []runtime.Object{steady}, exempt: true,
		},
		"a class that is not known": {
			preferred: func(p *st.PodWrapper) { p.Obj().Spec.PriorityClassName = "gone" }, told: &wire.Rules{}, exempt: true,
		},
		"a hard budget, though it allows one": {
			preferred: func(p *st.PodWrapper) { p.Label("app", "web") },
			told:      &wire.Rules{HardBudgetNamespaces: []string{"*"}}, objects: []runtime.Object{hardBudget("web", "default", web)}, exempt: true,
		},
		"a soft budget that allows one": {
			preferred: func(p *st.PodWrapper) { p.Label("app", "web") },
			told:      &wire.Rules{HardBudgetNamespaces: []string{"payments"}}, objects: []runtime.Object{hardBudget("web", "default", web)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := pod("preferred", "n1", 1, large)
			if test.preferred != nil {
				test.preferred(first)
			}
			p := pod("p", "", 100, large).Obj()
			w := newWorld(t, setup{objects: test.objects}, []*v1.Node{node("n1"), node("n2")}, p, first.Obj(), pod("other", "n2", 2, large).Obj())
			w.tells(ruling(test.told), at(1))
			w.eventually("classes and budgets are read", func() bool {
				classes, _ := w.plugin.engine.classes.List(labels.Everything())
				budgets, _ := w.framework.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
				return len(classes)+len(budgets) == len(test.objects)
			})
			want, victim := "n1", first.Obj()
			if test.exempt {
				want, victim = "n2", pod("other", "n2", 2, large).Obj()
			}

			result, status := w.fallsBack(w.fallback(), p)

			if got := nominatedNode(result, status); got != want {
				t.Fatalf("nominated to %q (%v), want %s", got, status, want)
			}
			w.eventually("the victim is deleted", func() bool { return w.gone(victim) })
			if test.exempt && w.gone(first.Obj()) {
				t.Error("the pod that is exempt is deleted too")
			}
		})
	}
}

func TestTheFallbackExemptsAProtectedPriorityAndSaysWhy(t *testing.T) {
	p := pod("p", "", 100, large).Obj()
	kept := pod("kept", "n1", 50, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, kept)
	w.tells(ruling(&wire.Rules{MinimumPriority: ptr.To[int32](50)}), at(1))

	result, status := w.fallsBack(w.fallback(), p)

	if result == nil || result.NominatedNodeName != "" || status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "makeway keeps pods of lower priority: protected-priority") {
		t.Errorf("result %+v, status %v", result, status)
	}
	if w.gone(kept) {
		t.Error("it is deleted")
	}
}

func TestTheFallbackEvictsNothingWhileItDoesNotKnowWhatIsProtected(t *testing.T) {
	configured := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "makeway-policy", Namespace: "makeway-system"}}
	queues := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "makeway-queues", Namespace: "makeway-system"}}
	protecting, queueing := configured.DeepCopy(), queues.DeepCopy()
	protecting.Data, queueing.Data = map[string]string{"policy.yaml": "protection: {}"}, map[string]string{"queues.yaml": "partitions: []"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "makeway-policy", nil)
	for name, test := range map[string]struct {
		objects []runtime.Object
		err     error
		args    func(*MakeWayArgs)
		state   *wire.ControlState
		why     string // empty: it acts
	}{
		"there is no policy":                  {},
		"no policy is configured":             {objects: []runtime.Object{configured}, args: func(a *MakeWayArgs) { a.PolicyConfigMap.Name = "" }},
		"there is a policy":                   {objects: []runtime.Object{configured}, why: "no control state is known"},
		"it may not be read whether there is": {err: forbidden, why: "no control state is known"},
		"there are queues":                    {objects: []runtime.Object{queues}, why: "the guarantees of queues are not known"},
		"an older planner has a policy":       {state: enforcing(1, func(s *wire.ControlState) { s.PolicyRevision = "p" }), why: "of an older version"},
		"an older planner has queues":         {state: enforcing(1, func(s *wire.ControlState) { s.QueuesRevision, s.Queues = "q", []wire.QueueLimit{{Path: "root"}} }), why: "of an older version"},
		"an older planner has neither":        {state: enforcing(1, nil)},
		"the policy says hold":                {state: ruling(&wire.Rules{WhenUnplanned: wire.WhenUnplannedHold}), why: "whenUnplanned of the policy is hold"},
		"the profile says hold":               {state: ruling(&wire.Rules{}), args: func(a *MakeWayArgs) { a.WhenUnplanned = wire.WhenUnplannedHold }, why: "whenUnplanned of MakeWayArgs is hold"},
		"the policy has changed":              {objects: []runtime.Object{protecting}, state: ruling(&wire.Rules{}), why: "makeway-policy has changed, and no planner has told what it says"},
		"the queues have changed":             {objects: []runtime.Object{queueing}, state: ruling(&wire.Rules{}), why: "makeway-queues has changed, and no planner has told what it says"},
		"the policy is the one that was told": {objects: []runtime.Object{protecting}, state: enforcing(1, func(s *wire.ControlState) { s.PolicyRevision, s.Rules = "sha256:14a7ac0d3db45dcc", &wire.Rules{} })},
		"a policy came, and was lost again":   {objects: []runtime.Object{configured}, state: ruling(&wire.Rules{})},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", 100, large).Obj()
			victim := pod("victim", "n1", 1, large).Obj()
			refuse := func(action k8stesting.Action) (bool, runtime.Object, error) {
				get, _ := action.(k8stesting.GetAction)
				return test.err != nil && get.GetName() == "makeway-policy", nil, test.err
			}
			w := newWorld(t, setup{args: test.args, objects: test.objects, findsOut: true, configMaps: refuse}, []*v1.Node{node("n1")}, p, victim)
			<-w.plugin.engine.gate.Decided()
			w.plugin.engine.findPolicy(w.ctx)
			if test.state != nil {
				w.plugin.engine.readStored(w.ctx) // says nothing of the state that comes now
				w.tells(test.state, at(1))
				if reason := w.plugin.engine.outdated(w.plugin.engine.control.current.Load()); reason != "" {
					t.Errorf("%s has changed, by what was read before", reason)
				}
			}
			w.plugin.engine.readStored(w.ctx)

			result, status := w.fallsBack(w.fallback(), p)

			if test.why == "" {
				if got := nominatedNode(result, status); got != "n1" {
					t.Errorf("nominated to %q: %v", got, status)
				}
				return
			}
			if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), test.why) {
				t.Errorf("result %+v, status %v", result, status)
			}
			if w.gone(victim) {
				t.Error("the victim is deleted")
			}
		})
	}
}

func TestTheFallbackEvictsNothingWhileTheBrakeHolds(t *testing.T) {
	p, victim := pod("p", "", 100, large).Obj(), pod("victim", "n1", 1, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, victim)
	w.tells(ruling(&wire.Rules{}), at(1))
	w.plugin.engine.control.brake.Store(parseBrake(map[string]string{"mode": wire.ModeOff, "namespaces": p.Namespace}))

	result, status := w.fallsBack(w.fallback(), p)

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "the brake is set (default)") {
		t.Errorf("result %+v, status %v", result, status)
	}
	if w.gone(victim) {
		t.Error("the victim is deleted")
	}
}

func TestTheFallbackPausesForAPodThatIsNotBoundThoughItEvictedForItThreeTimes(t *testing.T) {
	p, victim := pod("p", "", 100, large).Obj(), pod("victim", "n1", 1, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, victim)
	w.tells(ruling(&wire.Rules{}), at(1))
	pl := w.fallback()
	for i := range fallbackTries {
		if result, status := w.fallsBack(pl, p); nominatedNode(result, status) != "n1" {
			t.Fatalf("try %d: result %+v, status %v", i, result, status)
		}
		w.eventually("its victim is deleted", func() bool { return w.gone(victim) && pl.current(victim) == nil })
		w.eventually("the preemption has ended", func() bool { return !minor.IsPreempting(pl.upstream, p.UID) })
		if _, err := w.client.CoreV1().Pods(victim.Namespace).Create(w.ctx, victim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("another is in its place", func() bool { return pl.current(victim) != nil })
	}

	result, status := w.fallsBack(pl, p)

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "room was made for this pod 3 times, and it was not bound; the next try is at ") {
		t.Errorf("result %+v, status %v", result, status)
	}
	if w.plugin.engine.retry.count() != 1 {
		t.Error("it is not tried again")
	}
}

func TestTheFallbackEvictsNothingWhereNoProfileHasMakeWay(t *testing.T) {
	p := pod("p", "", 100, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("victim", "n1", 1, large).Obj())
	pl, err := NewFallback(w.ctx, nil, w.framework) // the world's engine is in no table
	if err != nil {
		t.Fatal(err)
	}

	result, status := w.fallsBack(pl.(*MakeWayFallback), p)

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "no profile of this scheduler has the plugin MakeWay") {
		t.Errorf("result %+v, status %v", result, status)
	}
}

// guaranteeing is a control state with queues a and b, of which b is guaranteed so much CPU.
func guaranteeing(guaranteed int64) *wire.ControlState {
	return enforcing(1, func(s *wire.ControlState) {
		s.QueuesRevision, s.Rules = "q", &wire.Rules{}
		s.Queues = []wire.QueueLimit{{Path: "root"}, {Path: "root.a"}, {Path: "root.b", Guaranteed: map[string]int64{"cpu": guaranteed}}}
	})
}

func inQueue(queue string, p *st.PodWrapper) *v1.Pod { return p.Label("queue", queue).Obj() }

func TestTheFallbackTakesNoOtherQueueBelowItsGuarantee(t *testing.T) {
	leaving := inQueue("root.b", pod("leaving", "n2", 1, large))
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(9e9, 0)}
	leaving.Finalizers = []string{"example.com/stay"}
	for name, test := range map[string]struct {
		guaranteed int64 // milli-CPU; each of the two victims on n1 has 200
		preemptor  string
		pods       []*v1.Pod
		victims    int // that must go; 0: none may
	}{
		"far above it":                            {400, "root.a", []*v1.Pod{inQueue("root.b", pod("more", "n2", 99, large))}, 1},
		"one may go":                              {200, "root.a", nil, 1},
		"one would take it below":                 {201, "root.a", nil, 0},
		"what is leaving does not count":          {400, "root.a", []*v1.Pod{leaving}, 0},
		"the preemptor's own queue":               {400, "root.b", nil, 1},
		"a pod that is not placed does not count": {400, "root.a", []*v1.Pod{inQueue("root.b", pod("waiting", "", 1, large))}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := inQueue(test.preemptor, pod("p", "", 100, medium))
			pods := append([]*v1.Pod{p, inQueue("root.b", pod("x", "n1", 1, medium)), inQueue("root.b", pod("y", "n1", 2, medium))}, test.pods...)
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, pods[:3]...)
			for _, more := range test.pods {
				w.plugin.engine.gate.PodChanged(more)
				if err := w.client.Tracker().Add(more); err != nil {
					t.Fatal(err)
				}
			}
			w.eventually("all are known", func() bool {
				known, _ := w.plugin.engine.pods.List(labels.Everything())
				return len(known) == len(pods)
			})
			w.tells(guaranteeing(test.guaranteed), at(1))

			result, status := w.fallsBack(w.fallback(), p)

			if got := nominatedNode(result, status) != ""; got != (test.victims > 0) {
				t.Errorf("nominated: %t (%v)", got, status)
			}
			if test.victims == 0 && !strings.Contains(status.Message(), "queue-guaranteed") {
				t.Errorf("status %v", status)
			}
		})
	}
}

func TestTwoVictimsTogetherDoNotTakeAQueueBelowItsGuarantee(t *testing.T) {
	p := inQueue("root.a", pod("p", "", 100, whole))
	x, y := inQueue("root.b", pod("x", "n1", 1, medium)), inQueue("root.b", pod("y", "n1", 2, medium))
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, x, y)
	w.tells(guaranteeing(200), at(1))

	result, status := w.fallsBack(w.fallback(), p)

	if got := nominatedNode(result, status); got != "" || w.gone(x) || w.gone(y) {
		t.Errorf("nominated to %q: %v", got, status)
	}
}

func TestVictimsOfTheCycleBeforeCountAsGoneThoughTheyStillShow(t *testing.T) {
	first, second := inQueue("root.a", pod("p1", "", 100, large)), inQueue("root.a", pod("p2", "", 100, large))
	x, y := inQueue("root.b", pod("x", "n1", 1, large)), inQueue("root.b", pod("y", "n2", 2, large))
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, first, second, x, y)
	w.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, nil }) // accepted, and nothing shows
	w.tells(guaranteeing(300), at(1))
	pl := w.fallback()

	if got := nominatedNode(w.fallsBack(pl, first)); got != "n1" {
		t.Fatalf("the first is nominated to %q", got)
	}

	if result, status := w.fallsBack(pl, second); nominatedNode(result, status) != "" {
		t.Errorf("the second is nominated to %s", result.NominatedNodeName)
	}
}

func TestVictimsOfOrdersInFlightCountAsGone(t *testing.T) {
	first, second := inQueue("root.a", pod("p1", "", 100, large)), inQueue("root.a", pod("p2", "", 100, large))
	x, y := inQueue("root.b", pod("x", "n1", 1, large)), inQueue("root.b", pod("y", "n2", 2, large))
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, first, second, x, y)
	w.bus.plan = answers(candidate("n1", "!x"))
	w.tells(guaranteeing(300), at(1))
	w.nominated(first, "n1")

	if result, status := w.fallsBack(w.fallback(), second); nominatedNode(result, status) != "" {
		t.Errorf("nominated to %s", result.NominatedNodeName)
	}
}

// addingExtender puts a pod among the victims of each node.
type addingExtender struct {
	fwk.Extender
	pod *v1.Pod
}

func (e *addingExtender) SupportsPreemption() bool  { return true }
func (e *addingExtender) IsInterested(*v1.Pod) bool { return true }
func (e *addingExtender) IsIgnorable() bool         { return false }
func (e *addingExtender) Name() string              { return "adding" }
func (e *addingExtender) ProcessPreemption(_ *v1.Pod, victims map[string]*extenderv1.Victims, _ fwk.NodeInfoLister) (map[string]*extenderv1.Victims, error) {
	for _, v := range victims {
		v.Pods = append(slices.Clone(v.Pods), e.pod)
	}
	return victims, nil
}

func TestNoVictimGoesInVainWhereAnExtenderAddsOneThatTheRulesKeep(t *testing.T) {
	for name, test := range map[string]struct {
		added *v1.Pod
		state *wire.ControlState
	}{
		"a protected namespace": {pod("added", "n1", 1, medium).Namespace("payments").Obj(), ruling(&wire.Rules{ProtectedNamespaces: []string{"payments"}})},
		"a guarantee":           {inQueue("root.b", pod("added", "n1", 1, medium)), guaranteeing(200)},
		"the number of victims": {pod("added", "n1", 1, medium).Obj(), limiting(1)},
	} {
		t.Run(name, func(t *testing.T) {
			p := inQueue("root.a", pod("p", "", 100, large))
			victim := inQueue("root.a", pod("victim", "n1", 1, medium))
			w := newWorld(t, setup{extenders: []fwk.Extender{&addingExtender{pod: test.added}}}, []*v1.Node{node("n1")}, p, victim, test.added)
			w.tells(test.state, at(1))
			pl := w.fallback()

			if result, status := w.fallsBack(pl, p); nominatedNode(result, status) != "n1" {
				t.Fatalf("status %v", status)
			}

			w.eventually("the preemptor is tried again", func() bool { return w.activator.of(p.UID) > 0 })
			w.eventually("the preemption has ended", func() bool { return !minor.IsPreempting(pl.upstream, p.UID) })
			if w.gone(test.added) {
				t.Error("the pod that the rules keep is deleted")
			}
			if w.gone(victim) {
				t.Error("the other victim went in vain")
			}
			if result, status := w.fallsBack(pl, p); nominatedNode(result, status) != "" || !strings.Contains(status.Message(), "preemption has just failed") {
				t.Errorf("the same is tried at once: %v", status)
			}
			if w.plugin.engine.retry.count() != 1 {
				t.Error("it is not tried again later")
			}
		})
	}
}

func TestTheFallbackDeletesThePodThatItChoseAndNoOtherOfItsName(t *testing.T) {
	p := pod("p", "", 100, large).Obj()
	victim := pod("victim", "n1", 1, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, victim)
	w.tells(ruling(&wire.Rules{}), at(1))
	asked := make(chan string, 2)
	w.client.PrependReactor("patch", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patch := action.(k8stesting.PatchAction)
		if patch.GetName() == "victim" {
			asked <- string(patch.GetPatch())
		}
		return false, nil, nil
	})
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "victim", nil)
	w.client.PrependReactor("delete", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if preconditions := action.(k8stesting.DeleteActionImpl).DeleteOptions.Preconditions; preconditions != nil {
			asked <- string(*preconditions.UID)
		}
		return true, nil, conflict
	})

	w.fallsBack(w.fallback(), p)

	w.eventually("both are asked", func() bool { return len(asked) == 2 })
	if patch := <-asked; !strings.Contains(patch, `"uid":"victim"`) || !strings.Contains(patch, "DisruptionTarget") {
		t.Errorf("patch %s", patch)
	}
	if uid := <-asked; uid != "victim" {
		t.Errorf("UID %q", uid)
	}
	w.eventually("the preemptor is tried again", func() bool { return w.activator.of(p.UID) > 0 })
}

func TestTheFallbacksOfTwoProfilesKeepAGuaranteeTogether(t *testing.T) {
	first, second := inQueue("root.a", pod("p1", "", 100, large)), inQueue("root.a", pod("p2", "", 100, large))
	x, y := inQueue("root.b", pod("x", "n1", 1, large)), inQueue("root.b", pod("y", "n2", 2, large))
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, first, second, x, y)
	w.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, nil }) // accepted, and nothing shows
	w.tells(guaranteeing(300), at(1))
	one, other := w.fallback(), w.fallback()

	if got := nominatedNode(w.fallsBack(one, first)); got != "n1" {
		t.Fatalf("the first is nominated to %q", got)
	}
	info, err := framework.NewPodInfo(first)
	if err != nil {
		t.Fatal(err)
	}
	w.framework.AddNominatedPod(klog.FromContext(w.ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n1"})

	if result, status := w.fallsBack(other, second); nominatedNode(result, status) != "" {
		t.Errorf("the second is nominated to %s: queue b is below its guarantee", result.NominatedNodeName)
	}
}

func TestAPodThatTookAVictimsNameIsNotDeleted(t *testing.T) {
	p := pod("p", "", 100, large).Obj()
	victim := pod("victim", "n1", 1, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, victim)
	w.tells(ruling(&wire.Rules{}), at(1))
	pl := w.fallback()
	again := victim.DeepCopy()
	again.UID = "again"
	if err := w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), again, again.Namespace); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new pod is known", func() bool { return w.plugin.engine.current(orders.RefOf(again)) != nil })

	w.fallsBack(pl, p) // the scheduler's snapshot still has the old one
	w.eventually("the preemption has ended", func() bool { return !minor.IsPreempting(pl.upstream, p.UID) })
	time.Sleep(50 * time.Millisecond)

	if w.gone(again) {
		t.Error("it is deleted")
	}
}

func TestTheFallbackTakesTheArgumentsOfDefaultPreemption(t *testing.T) {
	for text, want := range map[string]string{
		``: "",
		`{"minCandidateNodesPercentage": 50, "minCandidateNodesAbsolute": 7}`: "",
		`{"minCandidateNodesPercentage": 0}`:                                  "",
		`{"minCandidateNodesPercentage": 101}`:                                "minCandidateNodesPercentage",
		`{"minCandidates": 1}`:                                                "minCandidates",
		`{"kind": "MakeWayArgs"}`:                                             "MakeWayFallbackArgs, or left out",
	} {
		w := newWorld(t, setup{}, []*v1.Node{node("n1")})
		var object runtime.Object
		if text != "" {
			object = &runtime.Unknown{Raw: []byte(text), ContentType: runtime.ContentTypeJSON}
		}

		_, err := NewFallback(w.ctx, object, w.framework)

		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	args, err := decodeFallbackArgs(nil)
	if err != nil || args.MinCandidateNodesPercentage != 10 || args.MinCandidateNodesAbsolute != 100 {
		t.Errorf("%+v, %v", args, err)
	}
}

func TestTheFallbackKeepsDefaultPreemptionsOtherExtensionPoints(t *testing.T) {
	p, x, y := pod("p", "", 100, whole).Obj(), pod("x", "n1", 1, medium).Obj(), pod("y", "n1", 1, medium).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, x, y)
	w.tells(ruling(&wire.Rules{}), at(1))
	pl := w.fallback()
	events, err := pl.EventsToRegister(w.ctx)
	upstreams, _ := pl.upstream.EventsToRegister(w.ctx)
	if err != nil || len(events) != 1 || events[0].Event != upstreams[0].Event || events[0].Event.ActionType != fwk.Delete {
		t.Errorf("events %v, %v", events, err)
	}
	blocked, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		once.Do(func() { close(blocked) })
		<-released
		return false, nil, nil
	})
	if got := nominatedNode(w.fallsBack(pl, p)); got != "n1" {
		t.Fatalf("nominated to %q", got)
	}
	<-blocked

	if status := pl.PreEnqueue(w.ctx, p); status.IsSuccess() {
		t.Error("the preemptor is not held while its victims are being deleted")
	}
	close(released)
	w.eventually("it is let go", func() bool { return pl.PreEnqueue(context.Background(), p).IsSuccess() })
}

func TestWithoutAPlanAPodWaitsWhereThePolicySaysHold(t *testing.T) {
	for name, test := range map[string]struct {
		args func(*MakeWayArgs)
		told *wire.Rules
		hold bool
	}{
		"by the policy":   {nil, &wire.Rules{WhenUnplanned: wire.WhenUnplannedHold}, true},
		"by the argument": {func(a *MakeWayArgs) { a.WhenUnplanned = wire.WhenUnplannedHold }, &wire.Rules{}, true},
		"not":             {nil, &wire.Rules{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{args: test.args}, nil)
			w.bus.plan = nil
			w.tells(ruling(test.told), at(1))

			result, status := w.cycle(p)

			held := status.Code() == fwk.UnschedulableAndUnresolvable && strings.HasSuffix(status.Message(), "; whenUnplanned is hold")
			if result != nil || held != test.hold || !strings.Contains(status.Message(), "no plan: no planner answers") {
				t.Errorf("result %+v, status %v", result, status)
			}
			if w.plugin.engine.retry.count() != 1 {
				t.Error("it is not tried again")
			}
		})
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

// queueOfOne is a world whose queue a has room for one of two pods, without a planner; each has a victim on a node of its own.
func queueOfOne(t *testing.T) (w *world, pl *MakeWayFallback, first, second *v1.Pod) {
	t.Helper()
	first, second = inQueue("root.a", pod("p1", "", 100, large)), inQueue("root.a", pod("p2", "", 100, large))
	x, y := inQueue("root.b", pod("x", "n1", 1, large)), inQueue("root.b", pod("y", "n2", 2, large))
	w = newWorld(t, setup{gate: true}, []*v1.Node{node("n1"), node("n2")}, first, second, x, y)
	w.tells(enforcing(1, func(s *wire.ControlState) {
		s.QueuesRevision, s.Rules = "q", &wire.Rules{}
		s.Queues = []wire.QueueLimit{{Path: "root"}, {Path: "root.a", Max: map[string]int64{"cpu": 300}}, {Path: "root.b"}}
	}), at(1))
	w.plugin.fallbackOnce.Do(func() { w.plugin.fallback = true }) // the test runs it by hand
	if !w.plugin.PreEnqueue(w.ctx, first).IsSuccess() || w.plugin.PreEnqueue(w.ctx, second).IsSuccess() {
		t.Fatal("not the first alone comes to a cycle")
	}
	if _, status := w.cycle(first); status.Code() != fwk.Unschedulable {
		t.Fatalf("makeway: %v", status)
	}
	if w.plugin.PreEnqueue(w.ctx, second).IsSuccess() {
		t.Fatal("the second comes to a cycle before the fallback has decided about the first")
	}
	return w, w.fallback(), first, second
}

func TestAPodThatTheFallbackPreemptsForKeepsItsPlaceInItsQueue(t *testing.T) {
	for name, ends := range map[string]func(*world, *v1.Pod){
		"it is reserved and fails": func(w *world, p *v1.Pod) {
			state := framework.NewCycleState()
			if status := w.plugin.Reserve(w.ctx, state, p, "n1"); !status.IsSuccess() {
				w.t.Fatal(status)
			}
			w.plugin.Unreserve(w.ctx, state, p, "n1")
		},
		"it is deleted": func(w *world, p *v1.Pod) {
			w.delete(p)
			w.eventually("it is gone", func() bool { return w.plugin.engine.current(orders.RefOf(p)) == nil })
			time.Sleep(50 * time.Millisecond) // for the handlers
		},
		"its nomination ends": func(w *world, p *v1.Pod) {
			w.plugin.engine.fellBack(p, framework.NewPostFilterResultWithNominatedNode(""), fwk.NewStatus(fwk.Unschedulable))
		},
		"a cycle of its own refuses it": func(w *world, p *v1.Pod) {
			w.plugin.engine.attempted(p, false, false, preemptResult{kind: endRefused})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, pl, first, second := queueOfOne(t)
			if got := nominatedNode(w.fallsBack(pl, first)); got == "" {
				t.Fatal("the fallback does not act")
			}
			for range 2 {
				if w.plugin.PreEnqueue(w.ctx, second).IsSuccess() {
					t.Fatal("the second comes to a cycle though the queue has room for one pod")
				}
				w.plugin.engine.fellBack(first, nil, fwk.NewStatus(fwk.Unschedulable)) // its victims are leaving
			}

			ends(w, first)

			if !w.plugin.PreEnqueue(w.ctx, second).IsSuccess() {
				t.Error("the place is held still")
			}
		})
	}
}

func TestTheFallbackEvictsNoMorePodsThanThePolicyAllowsInOnePreemption(t *testing.T) {
	leaving := pod("leaving", "n1", 1, small).Terminating().Obj()
	leaving.Finalizers = []string{"example.com/stay"}
	for name, test := range map[string]struct {
		state *wire.ControlState
		want  string
	}{
		"more would have to go": {limiting(1), ""},
		"as many as may go":     {limiting(2), "n1"},
		"without a limit":       {ruling(&wire.Rules{}), "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", 100, whole).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("x", "n1", 1, medium).Obj(), pod("y", "n1", 1, medium).Obj(), leaving.DeepCopy())
			w.tells(test.state, at(1))

			result, status := w.fallsBack(w.fallback(), p)

			if got := nominatedNode(result, status); got != test.want {
				t.Errorf("nominated to %q (%v), want %q", got, status, test.want)
			}
			if test.want == "" && !strings.Contains(status.Message(), "2 pods would have to go, more than limits.victimsPerOrder of the policy (1)") {
				t.Errorf("status %v", status)
			}
		})
	}
}

func TestThePlaceThatIsHeldForTheFallbackEndsWithThePod(t *testing.T) {
	for name, ends := range map[string]func(*world, *v1.Pod){
		"it is deleted": func(w *world, p *v1.Pod) { w.delete(p) },
		"another scheduler binds it": func(w *world, p *v1.Pod) {
			if _, err := w.client.CoreV1().Pods(p.Namespace).Update(w.ctx, on(p, "n2"), metav1.UpdateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, pl, first, _ := queueOfOne(t)
			reservations := w.plugin.engine.reservations
			held := func() int {
				reservations.mu.Lock()
				defer reservations.mu.Unlock()
				return len(reservations.pods)
			}
			if got := nominatedNode(w.fallsBack(pl, first)); got == "" || held() != 1 {
				t.Fatalf("nominated to %q, %d places held", got, held())
			}

			ends(w, first)

			w.eventually("no place is held", func() bool { return held() == 0 })
		})
	}
}

func TestAPodThatTheFallbackRefusesLosesItsRoom(t *testing.T) {
	w, pl, first, second := queueOfOne(t)
	w.tells(enforcing(2, func(s *wire.ControlState) {
		s.QueuesRevision, s.Rules = "q", &wire.Rules{ProtectedNamespaces: []string{"default"}}
		s.Queues = []wire.QueueLimit{{Path: "root"}, {Path: "root.a", Max: map[string]int64{"cpu": 300}}, {Path: "root.b"}}
	}), at(2))

	if got := nominatedNode(w.fallsBack(pl, first)); got != "" {
		t.Fatal("it acts")
	}

	if !w.plugin.PreEnqueue(w.ctx, second).IsSuccess() {
		t.Error("the room is kept for a pod that nothing makes room for")
	}
}

func TestTheFallbackLeavesANodeOutForAWhileWhoseVictimCannotBeDeleted(t *testing.T) {
	p, victim := pod("p", "", 100, large).Obj(), pod("victim", "n1", 1, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, victim)
	w.tells(ruling(&wire.Rules{}), at(1))
	w.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "victim", nil)
	})
	pl := w.fallback()

	if result, status := w.fallsBack(pl, p); nominatedNode(result, status) != "n1" {
		t.Fatalf("status %v", status)
	}

	w.eventually("the preemptor is tried again", func() bool { return w.activator.of(p.UID) > 0 })
	w.eventually("the preemption has ended", func() bool { return !minor.IsPreempting(pl.upstream, p.UID) })
	if result, status := w.fallsBack(pl, p); nominatedNode(result, status) != "" || !strings.Contains(status.Message(), "preemption has just failed") {
		t.Errorf("the same is tried at once: %v", status)
	}
}

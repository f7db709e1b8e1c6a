package plugin

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/wire"
)

// patient is a PriorityClass that delays.
func patient(name, delay string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{memory.PreemptionDelay: delay}}, Value: high}
}

// delaying is a world with a PriorityClass that delays, which is known, and a pod of it.
func delaying(t *testing.T, delay string, given setup, change func(p *st.PodWrapper)) (*world, *v1.Pod) {
	t.Helper()
	given.objects = append(given.objects, patient("patient", delay))
	w, p, _ := simple(t, given, func(p *st.PodWrapper) {
		p.Obj().Spec.PriorityClassName = "patient"
		if change != nil {
			change(p)
		}
	})
	// A change that is taken later has a pod of the class tried again.
	w.eventually("the class is known", func() bool { return w.plugin.engine.cluster.classesSynced() })
	return w, p
}

func TestAPodOfADelayedClassIsTriedAgainWhenTheDelayIsOver(t *testing.T) {
	w, p := delaying(t, "700ms", setup{}, nil)

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || len(w.bus.requests) != 0 {
		t.Fatalf("result %+v, status %v, %d requests; want to wait, unasked", result, status, len(w.bus.requests))
	}
	if want := "PriorityClass patient has makeway.dev/preemption-delay 700ms"; !strings.Contains(status.Message(), want) || !strings.Contains(status.Message(), "delayed until ") {
		t.Errorf("message %q, want %q in it", status.Message(), want)
	}
	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
	w.nominated(p, "n1")
}

func TestAGangWaitsUntilEachOfItsMembersMayPreempt(t *testing.T) {
	g1, g2, g3 := gangMember("g1"), gangMember("g2"), gangMember("g3")
	g2.Spec.PriorityClassName, g3.Spec.PriorityClassName = "patient", "hurried"
	classes := []runtime.Object{patient("patient", "700ms"), patient("hurried", "1ms")}
	w, cycle := gangWorld(t, setup{objects: classes}, 3, 3, g1, g2, g3)
	plan := gangPlan("n1", "n2", "n3")
	for i := range plan.Placements {
		plan.Placements[i].MemberClass = int64(i)
	}
	w.bus.group = plans(plan)
	w.eventually("the classes are known", func() bool { return w.plugin.engine.cluster.classesSynced() })

	nodes, status := w.gang(cycle)

	if want := "PriorityClass patient has makeway.dev/preemption-delay 700ms"; nodes != nil || !strings.Contains(status.Message(), want) || len(w.bus.asked) != 0 {
		t.Fatalf("nodes %v, status %v, %d requests; want to wait by the class patient, unasked", nodes, status, len(w.bus.asked))
	}
	w.eventually("the group is activated", func() bool { return w.activator.of("g1") == 1 })
	if nodes, status = w.gang(cycle); len(nodes) != 3 {
		t.Errorf("nodes %v, status %v, want all members nominated", nodes, status)
	}
}

func TestTheDelayCountsFromThePodsCondition(t *testing.T) {
	for _, test := range []struct {
		reason  string
		delayed bool
	}{
		{v1.PodReasonUnschedulable, false},
		{v1.PodReasonSchedulingGated, true},
		{"QueueFull", true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			w, p := delaying(t, "1m", setup{}, func(p *st.PodWrapper) {
				p.Obj().Status.Conditions = []v1.PodCondition{unschedulable(time.Now().Add(-2*time.Minute), test.reason)}
			})

			result, status := w.cycle(p)

			if delayed := result == nil && strings.Contains(status.Message(), "delayed until"); delayed != test.delayed {
				t.Errorf("result %+v, status %v, want delayed: %v", result, status, test.delayed)
			}
		})
	}
}

func TestNothingIsDelayedByWhatCannotBeReadOrOutsideOfEnforce(t *testing.T) {
	observe := setup{args: func(a *MakeWayArgs) { a.Mode = wire.ModeObserve }}
	for name, test := range map[string]struct {
		delay string
		given setup
	}{"a bad value": {"soon", setup{}}, "too long": {"2h", setup{}}, "observe": {"1h", observe}} {
		t.Run(name, func(t *testing.T) {
			w, p := delaying(t, test.delay, test.given, nil)

			_, status := w.cycle(p)

			w.eventually("the planner is asked", func() bool { return w.asked() > 0 })
			if strings.Contains(status.Message(), "delayed") {
				t.Errorf("status %v", status)
			}
		})
	}
}

func TestAChangedClassEndsTheDelay(t *testing.T) {
	w, p := delaying(t, "1h", setup{}, nil)
	w.cycle(p)

	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "patient"}, Value: high}
	if _, err := w.client.SchedulingV1().PriorityClasses().Update(w.ctx, class, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
	w.nominated(p, "n1")
}

func TestAPodThatIsGoneIsNotRememberedAsDelayed(t *testing.T) {
	w, p := delaying(t, "1h", setup{}, nil)
	w.cycle(p)

	w.delete(p)

	w.eventually("it is forgotten", func() bool { return w.plugin.engine.memory.Delays.Len() == 0 })
}

func TestPodsWaitForPriorityClassesToBeReadForAWhile(t *testing.T) {
	w, p := delaying(t, "1h", setup{}, nil)
	e := w.plugin.engine
	e.cluster.classesSynced = func() bool { return false }

	if until, why := e.delayedUntil(p); until.IsZero() || why != "the PriorityClasses have not been read yet" {
		t.Errorf("until %v, %q", until, why)
	}
	e.cluster.started = e.cluster.started.Add(-classesAwaited)
	if until, _ := e.delayedUntil(p); !until.IsZero() {
		t.Errorf("still waits until %v", until)
	}
}

func unschedulable(since time.Time, reason string) v1.PodCondition {
	return v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(since)}
}

package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// unitRemovable is a pod of the unit "PodGroup default/g".
func unitRemovable(uid, node string, planned bool) wire.Removable {
	return wire.Removable{UID: uid, Rule: verify.RuleLowerPriority, Victim: planned, Unit: "PodGroup default/g", Node: node}
}

func TestAUnitIsOrderedWithItsPodsOnOtherNodes(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p, pod("a", "n1", low, large).Obj(), pod("b", "n2", low, large).Obj(), pod("c", "n1", low, medium).Obj())
	w.bus.plan = answers(wire.Candidate{Node: "n1", Removable: []wire.Removable{
		unitRemovable("a", "", true), unitRemovable("b", "n2", true), {UID: "c", Rule: verify.RuleLowerPriority},
	}})

	expectVictims(t, w.nominated(p, "n1"), "a", "b")
	w.show(p, "n1")
	w.order(1)
	if commit := w.bus.commits[0]; !slices.Equal(commit.Victims, []string{"a", "b"}) {
		t.Errorf("victims %q, want those of both nodes", commit.Victims)
	}
}

// inZone is a node of one zone.
func inZone(name string) *v1.Node {
	n := node(name)
	n.Labels["zone"] = "z"
	return n
}

func TestAPreemptorComesBackOnceItsNodeIsFreeOfAUnit(t *testing.T) {
	for name, affinity := range map[string]bool{
		"pods of the unit on other nodes are waited for": false,
		"also where they keep it from its node":          true,
	} {
		t.Run(name, func(t *testing.T) {
			wrapper := pod("p", "", high, large)
			if affinity {
				wrapper = wrapper.PodAntiAffinityExists("app", "zone", st.PodAntiAffinityWithRequiredReq)
			}
			p, a, b := wrapper.Obj(), pod("a", "n1", low, large).Label("app", "g").Obj(), pod("b", "n2", low, large).Label("app", "g").Obj()
			w := newWorld(t, setup{}, []*v1.Node{inZone("n1"), inZone("n2")}, p, a, b)
			w.bus.plan = answers(wire.Candidate{Node: "n1", Removable: []wire.Removable{unitRemovable("a", "", true), unitRemovable("b", "n2", true)}})
			expectVictims(t, w.nominated(p, "n1"), "a", "b")
			w.show(p, "n1")
			w.end(w.order(1), wire.ResultSucceeded)
			w.eventually("the order has succeeded", func() bool { e := w.entry(p.UID); return e != nil && e.Phase == orders.Leaving })

			w.delete(a)

			time.Sleep(10 * orders.Settle)
			if w.activator.of("p") != 0 {
				t.Error("activated while a pod of the unit is there")
			}
			w.delete(b)
			w.eventually("the pod is activated", func() bool { return w.activator.of("p") == 1 })
		})
	}
}

// nowhereShy is a filter that keeps pods off all nodes while a pod of label "shy" is on one of them.
type nowhereShy struct{ shyOf }

func (s nowhereShy) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status {
	if slices.ContainsFunc((*s.cycle).trial.nodes, hasShy) {
		return fwk.NewStatus(fwk.Unschedulable, "a pod somewhere is shy")
	}
	return nil
}

func TestAGangComesBackOnceTheNodesOfItsMembersAreFreeOfAUnit(t *testing.T) {
	for name, needed := range map[string]bool{
		"pods of the unit on other nodes are waited for": false,
		"also where they keep a member from its node":    true,
	} {
		t.Run(name, func(t *testing.T) {
			var c *gangCycle
			newShy := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
				return nowhereShy{shyOf{&c}}, nil
			}
			given := setup{filters: []tf.RegisterPluginFunc{tf.RegisterPluginAsExtensions("Shy", newShy, "PreFilter", "Filter")}, filter: true}
			member, here, there := gangMember("g1"), pod("v1", "n1", low, whole).Obj(), pod("v2", "n2", low, whole).Obj()
			if needed {
				there.Labels = map[string]string{"shy": "yes"}
			}
			w := newWorld(t, given, []*v1.Node{node("n1"), node("n2")}, member, here, there)
			c = &gangCycle{w: w, group: minor.Group{Namespace: "default", Name: "gang", UID: "gang-uid", MinCount: 1, Waiting: []*v1.Pod{member}}}
			plan := gangPlan("n1", "n2")
			plan.Placements = plan.Placements[:1]
			for i := range plan.Victims {
				plan.Victims[i].Unit = "PodGroup default/old"
			}
			w.bus.group = plans(plan)
			w.groupGated(member) // skips where members are no group
			if _, status := w.gang(c); !status.IsSuccess() {
				t.Fatal(status)
			}
			w.show(member, "n1")
			order := w.order(1)
			if len(order.Victims) != 2 {
				t.Fatalf("victims %+v", order.Victims)
			}
			w.end(order, wire.ResultSucceeded)
			w.eventually("the order has succeeded", func() bool { e := w.entry("gang-uid"); return e != nil && e.Phase == orders.Leaving })

			w.delete(here)

			time.Sleep(10 * orders.Settle)
			if w.activator.of("g1") != 0 {
				t.Error("activated while a pod of the unit is there")
			}
			w.delete(there)
			w.eventually("the gang is activated", func() bool { return w.activator.of("g1") == 1 })
			if w.groupGated(member) {
				t.Error("it is held")
			}
		})
	}
}

func TestAUnitOfWhichAPodIsNotThereMakesNoRoom(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p, pod("a", "n1", low, large).Obj(), pod("b", "n2", high, large).Obj())
	w.bus.plan = answers(wire.Candidate{Node: "n1", Removable: []wire.Removable{
		unitRemovable("a", "", true), unitRemovable("gone", "n2", true),
	}})

	if result, status := w.cycle(p); status.IsSuccess() {
		t.Errorf("got %+v, want no node: a part of a unit never goes", result)
	}
}

func TestPodsOfAGangAreHeldWhereThePolicySaysSo(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	joinGroup(p, "g")
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, large).Obj())
	w.tells(enforcing(1, func(s *wire.ControlState) { s.GroupPreemptors = wire.GroupPreemptorsHold }), at(1))

	if _, status := w.cycle(p); status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "groups.preemptors") {
		t.Errorf("got %s %q, want it held", status.Code(), status.Message())
	}
}

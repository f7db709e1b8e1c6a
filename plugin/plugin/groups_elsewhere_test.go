package plugin

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

const rackKey = "example.com/rack"

// shyRackOf is a filter that keeps pods off all nodes of a rack in which a pod of label "shy" runs.
type shyRackOf struct{ cycle **gangCycle }

func (shyRackOf) Name() string { return "ShyRack" }

func (s shyRackOf) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	nodes := (*s.cycle).w.nodes
	if trial := (*s.cycle).trial; trial != nil {
		nodes = trial.nodes
	}
	for _, other := range nodes {
		if other.Node().Labels[rackKey] == node.Node().Labels[rackKey] && hasShy(other) {
			return fwk.NewStatus(fwk.Unschedulable, "a pod of this rack is shy")
		}
	}
	return nil
}

func inRack(name, rack string) *v1.Node {
	n := node(name)
	n.Labels[rackKey] = rack
	return n
}

// rackWorld is one member, and three nodes of which n1 and n2 are in rack r1: v1 fills n1, and v2 on n2 keeps the rack closed. So does
// v3 on n3 of rack r2; v4 on n2 closes nothing. The plan takes v1 and v2.
func rackWorld(t *testing.T) (*world, *gangCycle, *wire.GroupPlan) {
	t.Helper()
	var c *gangCycle
	newShy := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return shyRackOf{&c}, nil }
	given := setup{filters: []tf.RegisterPluginFunc{tf.RegisterFilterPlugin("ShyRack", newShy)}, filter: true}
	member := gangMember("g1")
	shy := func(name, on string) *v1.Pod { return pod(name, on, low, nil).Label("shy", "yes").Obj() }
	nodes := []*v1.Node{inRack("n1", "r1"), inRack("n2", "r1"), inRack("n3", "r2")}
	w := newWorld(t, given, nodes, member, pod("v1", "n1", low, whole).Obj(), shy("v2", "n2"), shy("v3", "n3"), pod("v4", "n2", low, nil).Obj())
	c = &gangCycle{w: w, group: minor.Group{Namespace: "default", Name: "gang", UID: "gang-uid", MinCount: 1, Waiting: []*v1.Pod{member}}}
	plan := gangPlan("n1")
	plan.Victims = append(plan.Victims, wire.Removable{
		UID: "v2", Node: "n2", Rule: verify.RuleLowerPriority,
		Closes: &wire.ClosedDomain{Rule: "podAntiAffinity", Key: rackKey, Value: "r1"},
	})
	w.bus.group = plans(plan)
	return w, c, plan
}

func TestAVictimOnANodeOfNoMemberGoesForTheRackThatItKeepsClosed(t *testing.T) {
	w, c, _ := rackWorld(t)

	if nodes, status := w.gang(c); !status.IsSuccess() || named0(nodes)["g1"] != "n1" {
		t.Fatalf("%v, %v", nodes, status)
	}

	w.show(c.group.Waiting[0], "n1")
	if victims := w.order(1).Victims; len(victims) != 2 || victims[0].UID != "v1" || victims[1].UID != "v2" {
		t.Errorf("victims %+v", victims)
	}
	if _, waits := w.entry("gang-uid").Remaining["v2"]; !waits {
		t.Error("the gang does not wait for a pod that keeps its rack closed")
	}
}

func TestAVictimOnANodeOfAMemberMayGoForADomainToo(t *testing.T) {
	w, c, plan := rackWorld(t)
	plan.Victims[0].Closes = plan.Victims[1].Closes

	if _, status := w.gang(c); !status.IsSuccess() {
		t.Fatal(status)
	}

	w.show(c.group.Waiting[0], "n1")
	if victims := w.order(1).Victims; len(victims) != 2 {
		t.Errorf("victims %+v", victims)
	}
}

func TestAVictimOnANodeOfNoMemberThatClosesNothingIsOfferedBack(t *testing.T) {
	w, c, plan := rackWorld(t)
	plan.Victims = append(plan.Victims, wire.Removable{UID: "v4", Node: "n2", Rule: verify.RuleLowerPriority, Closes: plan.Victims[1].Closes})

	if _, status := w.gang(c); !status.IsSuccess() {
		t.Fatal(status)
	}
	victims := w.entry("gang-uid").Victims
	slices.Sort(victims)
	if !slices.Equal(victims, []types.UID{"v1", "v2"}) {
		t.Errorf("victims %v", victims)
	}
}

func TestAVictimOnANodeOfNoMemberIsRefusedWithoutADomainThatAMemberGoesTo(t *testing.T) {
	for name, change := range map[string]func(*wire.Removable){
		"no domain":                     func(v *wire.Removable) { v.Closes = nil },
		"another rack":                  func(v *wire.Removable) { v.Closes.Value = "r2" },
		"a label that no node has":      func(v *wire.Removable) { v.Closes.Key = "example.com/row" },
		"a node of another rack":        func(v *wire.Removable) { v.UID, v.Node = "v3", "n3" },
		"a rack that no member goes to": func(v *wire.Removable) { v.UID, v.Node, v.Closes.Value = "v3", "n3", "r2" },
	} {
		t.Run(name, func(t *testing.T) {
			w, c, plan := rackWorld(t)
			change(&plan.Victims[1])

			if _, status := w.gang(c); status.IsSuccess() || w.entry("gang-uid") != nil {
				t.Errorf("%v", status)
			}
		})
	}
}

func TestAPodThatLeavesOnANodeOfNoMemberIsAwaitedForTheRackThatItKeepsClosed(t *testing.T) {
	now := time.Now()
	for name, leaves := range map[string]func(*world, *v1.Pod) wire.Awaited{
		"terminating": func(_ *world, v2 *v1.Pod) wire.Awaited {
			leavingPod(v2, 20*time.Second)
			return wire.Awaited{UID: "v2", Namespace: "default", Name: "v2"}
		},
		"a victim of another order": func(w *world, _ *v1.Pod) wire.Awaited {
			w.plugin.engine.inflight.Begin(&orders.Order{OrderID: "ord-1", Preemptor: wire.PodRef{Namespace: "default", Name: "p", UID: "p"}, Node: "n2", Removal: orders.Removal{Victims: []types.UID{"v2"}}, CreatedAt: now, OpensAt: now.Add(time.Minute)})
			return wire.Awaited{UID: "v2", OrderID: "ord-1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, plan := rackWorld(t)
			v2, _ := nodeList(w.nodes).Get("n2")
			at := slices.IndexFunc(v2.GetPods(), func(pod fwk.PodInfo) bool { return pod.GetPod().UID == "v2" })
			plan.Victims = plan.Victims[:1]
			plan.Awaited = []wire.Awaited{leaves(w, v2.GetPods()[at].GetPod())}

			if nodes, status := w.gang(c); !status.IsSuccess() || named0(nodes)["g1"] != "n1" {
				t.Fatalf("%v, %v", nodes, status)
			}

			entry := w.entry("gang-uid")
			if !slices.Equal(entry.Victims, []types.UID{"v1"}) {
				t.Errorf("victims %v", entry.Victims)
			}
			if _, awaited := entry.Awaited["v2"]; !awaited {
				t.Error("the gang does not wait for a pod that keeps its rack closed")
			}
		})
	}
}

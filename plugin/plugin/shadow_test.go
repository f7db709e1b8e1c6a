package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/shadow"
	"makeway.dev/makeway/plugin/wire"
)

// asShadow asks a shadow on a world's framework about a pod.
func (w *world) asShadow(pod *v1.Pod, change func(*wire.PlanRequest)) *wire.PlanReply {
	w.t.Helper()
	shadow := &shadow.Shadow{
		Identity: "test", Filters: w.framework,
		Planner:    &ask.Client{Bus: w.bus, Subjects: w.plugin.args.Subjects(), Pods: ask.NewBreaker(clock.RealClock{}, nil)},
		Refresh:    func() error { return nil },
		Pods:       w.framework.SharedInformerFactory().Core().V1().Pods().Lister(),
		Namespaces: w.framework.SharedInformerFactory().Core().V1().Namespaces().Lister(),
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		w.t.Fatal(err)
	}
	request := &wire.PlanRequest{
		APIVersion: wire.APIVersion, RequestID: "req-1", ClusterUID: "cluster", Mode: wire.ModeEnforce, TimeoutMilliseconds: 4000, MaxCandidates: 16,
		Profile: wire.Profile{Name: "theirs"}, Classes: []wire.MemberClass{{Pod: raw, Count: 1}},
	}
	if change != nil {
		change(request)
	}
	data, err := wire.Encode(request)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := shadow.Answer(w.ctx, data)
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := wire.DecodeVersioned[wire.PlanReply](answer)
	if err != nil {
		w.t.Fatal(err)
	}
	if reply.RequestID != "req-1" {
		w.t.Errorf("an answer to %q", reply.RequestID)
	}
	return reply
}

// victimsIn are the names of the pods that a candidate wants gone; a pod's UID is its name here.
func victimsIn(candidate wire.Candidate) string {
	var names []string
	for _, one := range candidate.Removable {
		if one.Victim {
			names = append(names, one.UID)
		}
	}
	return strings.Join(names, " ")
}

func TestAShadowAsksAboutTheNodesThatItsFiltersReject(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)

	reply := w.asShadow(p, nil)

	if reply.Status != wire.StatusCandidates || len(reply.Candidates) != 1 || victimsIn(reply.Candidates[0]) != string(a.UID) {
		t.Fatalf("%+v", reply)
	}
	asked := w.bus.requests[0]
	if asked.Profile.Name != "theirs" || len(asked.Profile.Filters) == 0 || !asked.Classes[0].Nodes.AllBut {
		t.Errorf("asked with %+v, %+v", asked.Profile, asked.Classes[0].Nodes)
	}
}

func TestAShadowKeepsWhatNeedNotGo(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, small).Obj(), pod("b", "n1", low, large).Obj())
	w.bus.plan = answers(candidate("n1", "!a", "!b"))

	reply := w.asShadow(p, nil)

	if len(reply.Candidates) != 1 || len(reply.Candidates[0].Removable) != 2 || victimsIn(reply.Candidates[0]) != "b" {
		t.Fatalf("%+v", reply)
	}
}

func TestAShadowAnswersAllCandidatesThatStandBestFirst(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2"), node("n3")}, p,
		pod("a", "n1", low, whole).Obj(), pod("b", "n2", mid, whole).Obj(), pod("c", "n3", low, whole).Obj())
	w.bus.plan = answers(candidate("n1", "!a"), candidate("n3"), candidate("n2", "!b"))

	reply := w.asShadow(p, nil)

	if len(reply.Candidates) != 2 || victimsIn(reply.Candidates[0]) != "a" || victimsIn(reply.Candidates[1]) != "b" {
		t.Fatalf("%+v", reply)
	}
}

func TestAShadowServesNodesWithoutAColumn(t *testing.T) {
	w, p, a := simple(t, setup{}, nil)
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Unmodelled: []wire.Candidate{candidate("n1", "a")}, UnmodelledTotal: 1}, nil
	}

	reply := w.asShadow(p, nil)

	if len(reply.Unmodelled) != 0 || len(reply.Candidates) != 1 || victimsIn(reply.Candidates[0]) != string(a.UID) {
		t.Fatalf("%+v", reply)
	}
}

func TestAShadowAsksForOtherNodesWhereNoCandidateStands(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p, pod("a", "n1", high, whole).Obj(), pod("b", "n2", low, whole).Obj())
	w.bus.plan = func(asked *wire.PlanRequest) (*wire.PlanReply, error) {
		if nodes := asked.Classes[0].Nodes; nodes.AllBut && len(nodes.Names) == 0 {
			return &wire.PlanReply{Candidates: []wire.Candidate{candidate("n1", "!a")}}, nil
		}
		return &wire.PlanReply{Candidates: []wire.Candidate{candidate("n2", "!b")}}, nil
	}

	reply := w.asShadow(p, nil)

	if len(reply.Candidates) != 1 || victimsIn(reply.Candidates[0]) != "b" {
		t.Fatalf("%+v", reply)
	}
	if len(w.bus.requests) != 2 || w.bus.requests[0].MaxCandidates != 16 || w.bus.requests[1].MaxCandidates != 128 {
		t.Errorf("%+v", w.bus.requests)
	}
}

// broken is a filter that fails on every node.
type broken struct{}

func (broken) Name() string { return "Broken" }

func (broken) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status {
	return fwk.AsStatus(errors.New("its server is away"))
}

func TestAShadowTakesAFilterThatFailsForNoAnswer(t *testing.T) {
	p := pod("p", "", high, nil).Obj()
	given := setup{filters: []tf.RegisterPluginFunc{tf.RegisterFilterPlugin("Broken", func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return broken{}, nil
	})}}
	w := newWorld(t, given, []*v1.Node{node("n1")}, p, pod("a", "n1", low, whole).Obj())

	reply := w.asShadow(p, nil)

	if reply.Status != wire.StatusNotSynced || reply.Refusal == nil || reply.Refusal.Reason != shadow.ReasonNotVerified || !strings.Contains(reply.Refusal.Message, "its server is away") {
		t.Fatalf("%+v", reply.Refusal)
	}
}

func TestAShadowRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world, p *v1.Pod)
		asked  func(*wire.PlanRequest)
		status string
		reason string
		says   string
	}{
		"what its filters refuse": {
			change: func(w *world, _ *v1.Pod) { w.bus.plan = answers(candidate("n1")) },
			status: wire.StatusRefused, reason: shadow.ReasonFiltersReject, says: "no candidate passes",
		},
		"a pod that fits": {
			change: func(_ *world, p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = nil },
			status: wire.StatusRefused, reason: shadow.ReasonRoomIsThere, says: "take pod default/p on node n1",
		},
		"a pod that fits no node whatever goes": {
			change: func(_ *world, p *v1.Pod) {
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("7")}
			},
			status: wire.StatusRefused, reason: shadow.ReasonFiltersReject, says: "helps on no node",
		},
		"to plan without a planner": {
			change: func(w *world, _ *v1.Pod) {
				w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, natsbus.ErrNoResponders }
			},
			status: wire.StatusNotSynced, reason: shadow.ReasonNotVerified, says: "no planner answers",
		},
		"a question of another cluster": {
			asked:  func(r *wire.PlanRequest) { r.ClusterUID = "theirs" },
			status: wire.StatusNotSynced, reason: shadow.ReasonNotVerified, says: "subject prefix",
		},
		"a pod that cannot be read": {
			asked:  func(r *wire.PlanRequest) { r.Classes[0].Pod = json.RawMessage(`[]`) },
			status: wire.StatusNotSynced, reason: shadow.ReasonNotVerified, says: "the pod",
		},
		"a question whose time is over": {
			asked:  func(request *wire.PlanRequest) { request.TimeoutMilliseconds = 0 },
			status: wire.StatusNotSynced, reason: shadow.ReasonTooLate, says: "deadline",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			changed := p.DeepCopy()
			if test.change != nil {
				test.change(w, changed)
			}

			reply := w.asShadow(changed, test.asked)

			if reply.Status != test.status || reply.Refusal == nil || reply.Refusal.Reason != test.reason || !strings.Contains(reply.Refusal.Message, test.says) {
				t.Errorf("%+v %+v", reply, reply.Refusal)
			}
		})
	}
}

func TestAShadowCountsNominationsOfWhoAsksAndForgetsThem(t *testing.T) {
	p, other := pod("p", "", mid, small).Obj(), pod("other", "", high, whole).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, other)
	nominated := func(r *wire.PlanRequest) {
		r.Nominations = []wire.Placement{{Namespace: "default", Name: "other", UID: "other", Node: "n1"}}
	}
	w.bus.plan = answers(candidate("n1"))

	with, without := w.asShadow(p, nominated), w.asShadow(p, nil)

	if with.Refusal == nil || with.Refusal.Reason != shadow.ReasonFiltersReject {
		t.Errorf("with the nomination %+v", with.Refusal)
	}
	if without.Refusal == nil || without.Refusal.Reason != shadow.ReasonRoomIsThere {
		t.Errorf("without it %+v", without.Refusal)
	}
}

func TestAShadowBelievesInAwaitedPodsThatAnOrderRemoves(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	orderID := "ord-1"
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Candidates: []wire.Candidate{{Node: "n1", Awaited: []wire.Awaited{{UID: "a", OrderID: orderID}}}}}, nil
	}

	told := w.asShadow(p, nil)
	orderID = ""
	untold := w.asShadow(p, nil)

	if len(told.Candidates) != 1 || len(told.Candidates[0].Awaited) != 1 {
		t.Errorf("%+v", told)
	}
	if untold.Status != wire.StatusRefused {
		t.Errorf("%+v", untold)
	}
}

func TestAShadowSaysWhetherItHasReadTheCluster(t *testing.T) {
	w, _, _ := simple(t, setup{}, nil)
	shadow := &shadow.Shadow{Identity: "test", Denied: func() string { return "" }, Namespaces: w.framework.SharedInformerFactory().Core().V1().Namespaces().Lister()}

	before := shadow.Status()
	shadow.Synced.Store(true)
	after := shadow.Status()

	if before.Component != "shadow" || before.ClusterUID != "cluster" || before.Kubernetes == "" || !strings.Contains(before.Trouble, "has not read") {
		t.Errorf("%+v", before)
	}
	if after.Trouble != "" {
		t.Errorf("%+v", after)
	}
}

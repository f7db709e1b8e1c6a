package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// gangCycle is a cycle in which group "gang" could not be placed. It places members as the scheduler does: one after the other, on
// the first node that passes the filters. Where not enough fit it returns none.
type gangCycle struct {
	w      *world
	group  minor.Group
	trials int
	ended  int
	trial  *gangTrial // the last
}

func (c *gangCycle) Group() minor.Group { return c.group }

func (c *gangCycle) State() minor.GroupState { return nil }

func (c *gangCycle) Filters(ctx context.Context, member *v1.Pod) (fwk.CycleState, sets.Set[string], *fwk.Status) {
	state := framework.NewCycleState()
	_, status, _ := c.w.framework.RunPreFilterPlugins(ctx, state, member)
	return state, nil, status
}

func (c *gangCycle) Begin() (minor.GroupTrial, error) {
	c.trials++
	trial := &gangTrial{cycle: c}
	c.trial = trial
	for _, node := range c.w.nodes {
		trial.nodes = append(trial.nodes, node.Snapshot())
	}
	return trial, nil
}

// gangTrial is a copy of the nodes.
type gangTrial struct {
	cycle *gangCycle
	nodes []fwk.NodeInfo
}

func (t *gangTrial) Nodes() fwk.NodeInfoLister { return nodeList(t.nodes) }

func (t *gangTrial) Remove(ctx context.Context, pod *v1.Pod, node string) error {
	info, err := t.Nodes().Get(node)
	if err != nil {
		return err
	}
	return info.RemovePod(klog.FromContext(ctx), pod)
}

func (t *gangTrial) Add(pod fwk.PodInfo, node string) error {
	info, err := t.Nodes().Get(node)
	if err != nil {
		return err
	}
	info.AddPodInfo(pod)
	return nil
}

func (t *gangTrial) Place(ctx context.Context) (_ []minor.Assignment, status *fwk.Status) {
	var placed []minor.Assignment
	defer func() {
		for _, one := range placed {
			if err := t.Remove(ctx, one.Pod, one.Node); err != nil {
				status = fwk.AsStatus(err)
			}
		}
	}()
	for _, pod := range t.cycle.group.Waiting {
		state := framework.NewCycleState()
		result, status, _ := t.cycle.w.framework.RunPreFilterPlugins(ctx, state, pod)
		if !status.IsSuccess() {
			continue
		}
		for _, node := range t.nodes {
			if !result.AllNodes() && !result.NodeNames.Has(node.Node().Name) {
				continue
			}
			if !t.cycle.w.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node).IsSuccess() {
				continue
			}
			info, err := framework.NewPodInfo(on(pod, node.Node().Name))
			if err != nil {
				return nil, fwk.AsStatus(err)
			}
			node.AddPodInfo(info)
			t.cycle.w.plugin.Reserve(ctx, state, pod, node.Node().Name)
			placed = append(placed, minor.Assignment{Pod: pod, Info: info, Node: node.Node().Name, State: state})
			break
		}
	}
	if len(placed) < max(1, t.cycle.group.MinCount) {
		return nil, fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("%d of %d members fit", len(placed), t.cycle.group.MinCount))
	}
	return placed, nil
}

func (t *gangTrial) Assume(_ context.Context, member minor.Assignment) *fwk.Status {
	return fwk.AsStatus(t.Add(member.Info, member.Node))
}

func (t *gangTrial) Forget(ctx context.Context, member minor.Assignment) error {
	return t.Remove(ctx, member.Pod, member.Node)
}

func (t *gangTrial) End() error {
	t.cycle.ended++
	return nil
}

type nodeList []fwk.NodeInfo

func (l nodeList) List() ([]fwk.NodeInfo, error) { return l, nil }
func (l nodeList) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return nil, nil
}
func (l nodeList) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) { return nil, nil }
func (l nodeList) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return nil, nil
}

func (l nodeList) Get(name string) (fwk.NodeInfo, error) {
	for _, node := range l {
		if node.Node().Name == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node %s", name)
}

// gangMember is a pending member of group "gang" that needs a whole node.
func gangMember(name string) *v1.Pod {
	p := pod(name, "", high, whole).Obj()
	joinGroup(p, "gang")
	return p
}

// gangWorld is a world of nodes full of pods of low priority, v1 on n1 and so on, and a gang that has not been placed.
func gangWorld(t *testing.T, given setup, nodes int, minCount int, members ...*v1.Pod) (*world, *gangCycle) {
	t.Helper()
	given.filter = true
	var all []*v1.Node
	pods := slices.Clone(members)
	for i := 1; i <= nodes; i++ {
		all = append(all, node(fmt.Sprintf("n%d", i)))
		pods = append(pods, pod(fmt.Sprintf("v%d", i), fmt.Sprintf("n%d", i), low, whole).Obj())
	}
	w := newWorld(t, given, all, pods...)
	return w, &gangCycle{w: w, group: minor.Group{Namespace: "default", Name: "gang", UID: "gang-uid", MinCount: minCount, Waiting: members}}
}

// gangPlan places a member of class 0 on each of some nodes, and evicts the pod there.
func gangPlan(nodes ...string) *wire.GroupPlan {
	plan := &wire.GroupPlan{}
	for _, name := range nodes {
		plan.Placements = append(plan.Placements, wire.MemberPlacement{Node: name, Count: 1})
		plan.Victims = append(plan.Victims, wire.Removable{UID: "v" + name[1:], Node: name, Rule: verify.RuleLowerPriority})
	}
	return plan
}

func plans(plan *wire.GroupPlan) func(*wire.PlanRequest) (*wire.PlanReply, error) {
	return func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Plan: plan, DecisionID: "dec-1"}, nil
	}
}

func (w *world) gang(c *gangCycle) (map[types.NamespacedName]string, *fwk.Status) {
	w.t.Helper()
	nodes, status := w.plugin.preemptForGroup(w.ctx, c)
	if c.trials != c.ended {
		w.t.Fatalf("%d trials begun, %d ended", c.trials, c.ended)
	}
	return nodes, status
}

func named0(nodes map[types.NamespacedName]string) map[string]string {
	short := map[string]string{}
	for name, node := range nodes {
		short[name.Name] = node
	}
	return short
}

// groupGated reports whether PreEnqueue holds a member. Versions whose members are no group are left out.
func (w *world) groupGated(pod *v1.Pod) bool {
	if minor.GroupName(pod) == "" {
		w.t.Skip("this version of Kubernetes places no groups")
	}
	return w.gated(pod)
}

func TestAGangMakesRoomWithOneOrderForAllMembers(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 3, 2, g1, g2)
	w.bus.group = plans(gangPlan("n2", "n3"))

	nodes, status := w.gang(c)

	if want := map[string]string{"g1": "n2", "g2": "n3"}; !status.IsSuccess() || !maps.Equal(named0(nodes), want) {
		t.Fatalf("%v, %v; want %v", named0(nodes), status, want)
	}
	late := gangMember("late")
	for _, p := range []*v1.Pod{g1, g2, late} {
		if !w.groupGated(p) {
			t.Errorf("%s is not held", p.Name)
		}
	}
	w.show(g1, "n2")
	time.Sleep(50 * time.Millisecond)
	w.bus.mu.Lock()
	early := len(w.bus.messages)
	w.bus.mu.Unlock()
	if early != 0 {
		t.Fatal("the order is stored before all nominations show")
	}
	w.show(g2, "n3")
	order := w.order(1)
	if order.Kind != wire.KindGroup || order.Group.UID != "gang-uid" || order.Group.MustPlace != 2 || len(order.Members) != 2 || order.Preemptor != nil {
		t.Fatalf("order %+v", order)
	}
	victims := map[string]string{}
	for _, v := range order.Victims {
		victims[v.UID] = v.Node
	}
	if want := map[string]string{"v2": "n2", "v3": "n3"}; !maps.Equal(victims, want) {
		t.Fatalf("victims %v, want %v", victims, want)
	}
	if got := w.bus.messages[0].Subject; got != "makeway.v1.orders.group.gang-uid" {
		t.Errorf("on subject %s", got)
	}

	// While the order lives its nominations stand.
	if again, status := w.gang(c); !status.IsSuccess() || !maps.Equal(named0(again), named0(nodes)) {
		t.Errorf("%v, %v while the order lives", named0(again), status)
	}
	w.end(order, wire.ResultSucceeded)
	w.eventually("the gate is open", func() bool { return !w.groupGated(g1) && !w.groupGated(late) })
	// They were held, and are activated once by another goroutine after the gate has opened.
	w.eventually("it is activated", func() bool { return w.activator.of("g1") > 0 })
	before := w.activator.of("g1")
	w.delete(pod("v2", "n2", low, whole).Obj())
	time.Sleep(10 * orders.Settle)
	if w.activator.of("g1") != before {
		t.Fatal("activated with a victim left")
	}
	w.delete(pod("v3", "n3", low, whole).Obj())
	w.eventually("it is activated", func() bool { return w.activator.of("g1") == before+1 })
}

func TestWhileItsVictimsLeaveAGangKeepsItsNominationsAndOrdersNothing(t *testing.T) {
	w, c := gangWorld(t, setup{}, 3, 2, gangMember("g1"), gangMember("g2"))
	w.bus.group = plans(gangPlan("n2", "n3"))
	nodes, status := w.gang(c)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	for name, node := range named0(nodes) {
		w.show(gangMember(name), node)
	}
	w.end(w.order(1), wire.ResultSucceeded)
	g1 := gangMember("g1")
	w.eventually("the gate is open", func() bool {
		e := w.entry("gang-uid")
		return e != nil && e.Phase == orders.Leaving && !w.groupGated(g1)
	})
	asked, messages := len(w.bus.asked), len(w.bus.messages)

	again, status := w.gang(c)

	if !status.IsSuccess() || again == nil || !maps.Equal(named0(again), named0(nodes)) {
		t.Errorf("nominated %v, %v", named0(again), status)
	}
	if len(w.bus.asked) != asked || len(w.bus.messages) != messages {
		t.Errorf("%d questions, %d orders", len(w.bus.asked)-asked, len(w.bus.messages)-messages)
	}
	if !w.groupGated(g1) {
		t.Error("not held after a cycle that failed")
	}
}

func TestModeObserveWaitsForNoAnswerAboutAGang(t *testing.T) {
	w, c := gangWorld(t, setup{args: func(a *MakeWayArgs) { a.Mode = wire.ModeObserve }}, 3, 2, gangMember("g1"), gangMember("g2"))
	answer := make(chan struct{})
	w.bus.group = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		<-answer
		return nil, context.DeadlineExceeded
	}

	_, status := w.gang(c) // it would not return before the answer has come

	close(answer)
	if !strings.Contains(status.Message(), "mode observe") {
		t.Errorf("status %v", status)
	}
}

func TestAStandbyClearsNoNominationsOfAGang(t *testing.T) {
	for name, leads := range map[string]bool{"standby": false, "leader": true} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another_1")}}
			given := setup{objects: []runtime.Object{lease}, args: func(a *MakeWayArgs) {
				a.Lease = pluginargs.LeaseReference{Namespace: "kube-system", Name: "kube-scheduler"}
			}}
			w, _ := gangWorld(t, given, 3, 2, gangMember("g1"), gangMember("g2"))
			w.show(gangMember("g1"), "n1")
			w.eventually("the nomination shows", func() bool { shown, _ := w.plugin.engine.placements.Lists(nil); return len(shown) == 1 })
			w.plugin.engine.leadership.Leads.Store(leads)
			e := &orders.Order{OrderID: "ord-1", Preemptor: wire.PodRef{Namespace: "default", Name: "gang", UID: "gang-uid"}, CreatedAt: start, OpensAt: time.Now().Add(50 * time.Millisecond), Removal: orders.Removal{Awaited: map[types.UID]string{}, Remaining: map[types.UID]time.Time{}}}
			e.Enter(wire.Placement{Namespace: "default", Name: "g1", UID: "g1", Node: "n1"})

			w.plugin.engine.inflight.Adopt(e, time.Now()) // by this clock it has no outcome in time

			w.eventually("the order is over", func() bool { return w.entry("gang-uid") == nil })
			cleared := slices.ContainsFunc(w.client.Actions(), func(action k8stesting.Action) bool {
				return action.GetVerb() == "patch" && action.GetSubresource() == "status"
			})
			if cleared != leads {
				t.Errorf("cleared: %t", cleared)
			}
		})
	}
}

func TestAQuestionAboutAGangHasClassesOfEqualMembers(t *testing.T) {
	indexed := func(name, index string) *v1.Pod {
		p := gangMember(name)
		p.Labels = map[string]string{"batch.kubernetes.io/job-completion-index": index, "app": "train"}
		return p
	}
	small := pod("g3", "", high, small).Obj()
	joinGroup(small, "gang")
	w, c := gangWorld(t, setup{}, 2, 3, indexed("g1", "0"), indexed("g2", "1"), small)
	c.group.Placed = []*v1.Pod{on(gangMember("there"), "n1")}
	c.group.Topology = []string{"zone"}
	message, position := unreadableOutcome(512)
	w.plugin.engine.takeOutcome(w.ctx, message)

	w.gang(c)

	if len(w.bus.asked) != 1 {
		t.Fatalf("asked %d times", len(w.bus.asked))
	}
	q := w.bus.asked[0]
	if len(q.Classes) != 2 || q.Classes[0].Count != 2 || q.Classes[1].Count != 1 {
		t.Errorf("classes %+v", q.Classes)
	}
	if q.MustPlace != 2 || !slices.Equal(q.Topology, []string{"zone"}) || len(q.Placed) != 1 || q.Placed[0].Node != "n1" || q.Group.Priority != high {
		t.Errorf("question %+v", q)
	}
	if q.OutcomesRead == nil || *q.OutcomesRead != position {
		t.Errorf("outcomes read: %+v", q.OutcomesRead)
	}
}

func TestLabelsThatMembersRulesNameTellClassesApart(t *testing.T) {
	spread := func(name, shard string) *v1.Pod {
		p := gangMember(name)
		p.Labels = map[string]string{"shard": shard}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MatchLabelKeys: []string{"shard"}}}
		return p
	}

	classes, err := ask.Classes([]*v1.Pod{spread("a", "1"), spread("b", "1"), spread("c", "2")}, queues.QueueLabels(), byName)

	if err != nil || len(classes) != 2 || len(classes[0].Pods) != 2 {
		t.Errorf("%d classes, %v", len(classes), err)
	}
}

func TestMembersOfDifferentQueuesAreOfDifferentKinds(t *testing.T) {
	for _, label := range []string{"queue", "yunikorn.apache.org/queue"} {
		leader, worker := pod("leader", "", high, small).Label(label, "root.a").Obj(), pod("worker", "", high, small).Label(label, "root.b").Obj()

		classes, err := ask.Classes([]*v1.Pod{leader, worker}, queues.QueueLabels(), byName)

		if err != nil || len(classes) != 2 {
			t.Errorf("label %s: %d classes, %v", label, len(classes), err)
		}
	}
}

// byName has claims of one name alone leave pods the same nodes.
func byName(_, claim string) string { return claim }

func TestAGangOfTooManyKindsOfMembersIsLeftToTheNextPluginAndTriedAgain(t *testing.T) {
	var members []*v1.Pod
	for i := range wire.MostMemberClasses + 1 {
		p := pod(fmt.Sprint("g", i), "", high, size(fmt.Sprint(i+1))).Obj()
		joinGroup(p, "gang")
		members = append(members, p)
	}
	w, c := gangWorld(t, setup{}, 1, 1, members...)

	_, status := w.gang(c)

	if status.Code() != fwk.Unschedulable || !strings.Contains(status.Message(), "more than 16 kinds") || len(w.bus.asked) != 0 {
		t.Errorf("%v after %d questions", status, len(w.bus.asked))
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("the group is not tried again")
	}
}

func TestMembersWithClaimsOfTheirOwnAreOfOneKindWhereTheClaimsLeaveThemTheSameNodes(t *testing.T) {
	volume := func(name, zone string) *v1.PersistentVolume {
		affinity := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}}}}
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{NodeAffinity: affinity}}
	}
	claim := func(name, volume, class string, modes ...v1.PersistentVolumeAccessMode) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume, StorageClassName: &class, AccessModes: modes}}
	}
	given := setup{objects: []runtime.Object{
		volume("a0", "a"), volume("a1", "a"), volume("b0", "b"),
		claim("fast-0", "", "fast"), claim("fast-1", "", "fast"), claim("slow-0", "", "slow"),
		claim("in-a-0", "a0", "fast"), claim("in-a-1", "a1", "fast"), claim("in-b", "b0", "fast"),
		claim("alone-0", "", "fast", v1.ReadWriteOncePod), claim("alone-1", "", "fast", v1.ReadWriteOncePod),
	}}
	w, _ := gangWorld(t, given, 1, 1, gangMember("g1"))
	for name, test := range map[string]struct {
		claims []string
		kinds  int
	}{
		"bound to no node":                      {[]string{"fast-0", "fast-1"}, 1},
		"of two storage classes":                {[]string{"fast-0", "slow-0"}, 2},
		"volumes in one zone":                   {[]string{"in-a-0", "in-a-1"}, 1},
		"volumes in two zones":                  {[]string{"in-a-0", "in-b"}, 2},
		"with a volume and without":             {[]string{"in-a-0", "fast-0"}, 2},
		"that one pod at a time may use":        {[]string{"alone-0", "alone-1"}, 2},
		"that are not known":                    {[]string{"unknown-0", "unknown-1"}, 2},
		"a StatefulSet's of which one is bound": {[]string{"fast-0", "fast-1", "in-a-0"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var members []*v1.Pod
			for i, of := range test.claims {
				member := gangMember(fmt.Sprint("m", i))
				member.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: of}}}}
				members = append(members, member)
			}

			classes, err := ask.Classes(members, queues.QueueLabels(), w.plugin.engine.cluster.claims.Reach)

			if err != nil || len(classes) != test.kinds {
				t.Errorf("%d kinds, %v, want %d", len(classes), err, test.kinds)
			}
			if got := members[0].Spec.Volumes[0].PersistentVolumeClaim.ClaimName; got != test.claims[0] {
				t.Errorf("the member itself names claim %s now, not %s", got, test.claims[0])
			}
		})
	}
}

func TestNodesThatClassesHaveInCommonAreNamedOnce(t *testing.T) {
	small := pod("g2", "", high, small).Obj()
	joinGroup(small, "gang")
	elsewhere := pod("g3", "", high, medium).Obj()
	joinGroup(elsewhere, "gang")
	w, c := gangWorld(t, setup{}, 4, 3, gangMember("g1"), small, elsewhere)
	a := w.plugin.groupAttempt(c, c.group)
	var err error
	if a.classes, err = ask.Classes(c.group.Waiting, queues.QueueLabels(), byName); err != nil || len(a.classes) != 3 {
		t.Fatal(len(a.classes), err)
	}
	two := wire.NodeSelection{Names: []string{"n1", "n2"}}
	a.classes[0].Potential = ask.Potential{Count: 2, Nodes: two}
	a.classes[1].Potential = ask.Potential{Count: 2, Nodes: wire.NodeSelection{Names: []string{"n1", "n3"}}}
	a.classes[2].Potential = ask.Potential{Count: 2, Nodes: two}

	known, err := w.plugin.known()
	if err != nil {
		t.Fatal(err)
	}

	request, err := a.asks().Request(known)

	if err != nil {
		t.Fatal(err)
	}
	if asked := request.Classes; asked[1].SameNodesAs != nil || len(asked[1].Nodes.Names) != 2 || asked[2].SameNodesAs == nil || *asked[2].SameNodesAs != 0 || len(asked[2].Nodes.Names) != 0 {
		t.Errorf("classes %+v", asked)
	}
}

func TestAVictimThatIsNotNeededStays(t *testing.T) {
	w, c := gangWorld(t, setup{}, 1, 1, gangMember("g1"), pod("idle", "n1", low, nil).Obj())
	c.group.Waiting = c.group.Waiting[:1]
	plan := gangPlan("n1")
	plan.Victims = append(plan.Victims, wire.Removable{UID: "idle", Node: "n1", Rule: verify.RuleLowerPriority})
	w.bus.group = plans(plan)

	_, status := w.gang(c)

	if !status.IsSuccess() {
		t.Fatal(status)
	}
	if victims := w.entry("gang-uid").Victims; !slices.Equal(victims, []types.UID{"v1"}) {
		t.Errorf("victims %v", victims)
	}
}

// shyOf is a filter that keeps pods off nodes with a pod of label "shy", and is skipped where no node has one, as InterPodAffinity is
// for a pod without terms.
type shyOf struct{ cycle **gangCycle }

func (shyOf) Name() string { return "Shy" }

func (s shyOf) PreFilter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if c := *s.cycle; c != nil && c.trial != nil {
		nodes = c.trial.nodes
	}
	if slices.ContainsFunc(nodes, hasShy) {
		return nil, nil
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

func (shyOf) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (shyOf) Filter(_ context.Context, _ fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if hasShy(node) {
		return fwk.NewStatus(fwk.Unschedulable, "a pod here is shy")
	}
	return nil
}

func hasShy(node fwk.NodeInfo) bool {
	return slices.ContainsFunc(node.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().Labels["shy"] != "" })
}

func TestAVictimOfAFilterThatWasSkippedWithoutItGoes(t *testing.T) {
	var c *gangCycle
	newShy := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return shyOf{&c}, nil }
	given := setup{filters: []tf.RegisterPluginFunc{tf.RegisterPluginAsExtensions("Shy", newShy, "PreFilter", "Filter")}, filter: true}
	member := gangMember("g1")
	shy := pod("v1", "n1", low, nil).Label("shy", "yes").Obj()
	idle := pod("v2", "n1", low, nil).Obj()
	w := newWorld(t, given, []*v1.Node{node("n1")}, member, shy, idle)
	c = &gangCycle{w: w, group: minor.Group{Namespace: "default", Name: "gang", UID: "gang-uid", MinCount: 1, Waiting: []*v1.Pod{member}}}
	w.bus.group = plans(&wire.GroupPlan{
		Placements: []wire.MemberPlacement{{Node: "n1", Count: 1}},
		Victims:    []wire.Removable{{UID: "v1", Node: "n1", Rule: verify.RuleLowerPriority}},
	})

	if _, status := w.gang(c); !status.IsSuccess() {
		t.Fatal(status)
	}
	if entry := w.entry("gang-uid"); entry == nil || !slices.Equal(entry.Victims, []types.UID{"v1"}) {
		t.Errorf("order %+v", entry)
	}
}

func TestTheNodeWhereAMemberIsRefusedIsLeftOutOfTheNextPlan(t *testing.T) {
	w, c := gangWorld(t, setup{}, 3, 2, gangMember("g1"), gangMember("g2"))
	w.bus.group = func(q *wire.PlanRequest) (*wire.PlanReply, error) {
		if len(w.bus.asked) == 1 {
			wrong := gangPlan("n1", "n2")
			wrong.Victims = wrong.Victims[:1] // the planner does not see that v2 is in the way
			return &wire.PlanReply{Plan: wrong}, nil
		}
		return &wire.PlanReply{Plan: gangPlan("n1", "n3")}, nil
	}

	nodes, status := w.gang(c)

	if want := map[string]string{"g1": "n1", "g2": "n3"}; !status.IsSuccess() || !maps.Equal(named0(nodes), want) {
		t.Fatalf("%v, %v", nodes, status)
	}
	second := w.bus.asked[1].Classes[0].Nodes
	if !second.AllBut || !slices.Equal(second.Names, []string{"n2"}) {
		t.Errorf("the second plan may use %+v", second)
	}
}

func TestAPlanThatTakesWhatItMayNotIsRefused(t *testing.T) {
	for name, change := range map[string]func(*wire.GroupPlan){
		"a pod that is not there":  func(p *wire.GroupPlan) { p.Victims[0].UID = "other" },
		"a rule that is not known": func(p *wire.GroupPlan) { p.Victims[0].Rule = "because" },
		"a pod of the same priority": func(p *wire.GroupPlan) {
			p.Victims[0] = wire.Removable{UID: "mate", Node: "n1", Rule: verify.RuleLowerPriority}
		},
		"fewer members than must be":   func(p *wire.GroupPlan) { p.Placements = p.Placements[:1] },
		"more members than there are":  func(p *wire.GroupPlan) { p.Placements[0].Count = 3 },
		"a class that is not asked of": func(p *wire.GroupPlan) { p.Placements[0].MemberClass = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := gangWorld(t, setup{}, 2, 2, gangMember("g1"), gangMember("g2"), pod("mate", "n1", high, nil).Obj())
			c.group.Waiting = c.group.Waiting[:2]
			plan := gangPlan("n1", "n2")
			change(plan)
			w.bus.group = plans(plan)

			_, status := w.gang(c)

			if status.IsSuccess() || w.entry("gang-uid") != nil {
				t.Errorf("%v", status)
			}
		})
	}
}

func TestAGangWhoseOrderFailsIsLetGoWithoutItsNominations(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 2, 2, g1, g2)
	w.bus.group = plans(gangPlan("n1", "n2"))
	w.gang(c)
	w.show(g1, "n1")
	w.show(g2, "n2")
	order := w.order(1)

	w.end(order, wire.ResultFailed)

	w.eventually("the gang is let go", func() bool { return w.entry("gang-uid") == nil })
	w.eventually("its nominations are cleared in the API", func() bool {
		for _, name := range []string{"g1", "g2"} {
			p, err := w.plugin.engine.cluster.pods.Pods("default").Get(name)
			if err != nil || p.Status.NominatedNodeName != "" {
				return false
			}
		}
		return true
	})
	w.eventually("it is tried again", func() bool { return w.activator.of("g1") > 0 && w.activator.of("g2") > 0 })
}

func TestAGangIsNotOrderedForOnceAMemberIsGone(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 2, 2, g1, g2)
	w.bus.group = plans(gangPlan("n1", "n2"))
	w.gang(c)

	w.delete(g2)

	w.eventually("the order is given up", func() bool { return w.entry("gang-uid") == nil })
	if len(w.bus.messages) != 0 {
		t.Error("an order was stored")
	}
}

func TestEndingsOfAGangThatMayNotPreempt(t *testing.T) {
	for name, c := range map[string]struct {
		args    func(*MakeWayArgs)
		group   func(*minor.Group)
		code    fwk.Code
		message string
	}{
		"composite":            {group: func(g *minor.Group) { g.Composite = true }, code: fwk.Unschedulable, message: "composite pod groups"},
		"mode off":             {args: func(a *MakeWayArgs) { a.Mode = wire.ModeOff }, code: fwk.Unschedulable, message: "mode off"},
		"never preempts":       {group: func(g *minor.Group) { g.NeverPreempts = true }, code: fwk.Unschedulable, message: "preemptionPolicy=Never"},
		"no planner":           {code: fwk.Unschedulable, message: "no planner answers"},
		"no member that waits": {group: func(g *minor.Group) { g.Waiting = nil }, code: fwk.Unschedulable, message: "no member"},
	} {
		t.Run(name, func(t *testing.T) {
			w, cycle := gangWorld(t, setup{args: c.args}, 1, 1, gangMember("g1"))
			if c.group != nil {
				c.group(&cycle.group)
			}

			nodes, status := w.gang(cycle)

			if nodes != nil || status.Code() != c.code || !strings.Contains(status.Message(), c.message) {
				t.Errorf("%v, %v", nodes, status)
			}
		})
	}
}

func TestAPlanThatDoesNotStandIsMadeAgainBeforeOthersMayAct(t *testing.T) {
	w, c := gangWorld(t, setup{}, 1, 1, gangMember("g1"))
	behind := gangPlan("n1")
	behind.Victims = nil
	behind.Awaited = []wire.Awaited{{UID: "v1", OrderID: "ord-1"}} // an order that has failed, which the planner has not heard of
	w.bus.group = plans(behind)
	failed := &orders.Order{Preemptor: wire.PodRef{Namespace: "default", Name: "gang", UID: "gang-uid"}, OrderID: "ord-0"}
	failed.Enter(wire.Placement{Namespace: "default", Name: "g1", UID: "g1", Node: "n1"})
	w.plugin.engine.release(w.ctx, orders.Activation{Order: failed, Revert: true}) // which is no plan

	for cycle := 1; cycle <= plansBeforeOthers+1; cycle++ {
		_, status := w.gang(c)

		want := fwk.UnschedulableAndUnresolvable
		if cycle >= plansBeforeOthers {
			want = fwk.Unschedulable
		}
		if status.Code() != want || !strings.Contains(status.Message(), "the plan failed verification") {
			t.Errorf("cycle %d: %v", cycle, status)
		}
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("the group is not tried again")
	}
}

func TestWherePlacesWereNotFoundOthersMayActInTheEnd(t *testing.T) {
	w, c := gangWorld(t, setup{}, 1, 1, gangMember("g1"))
	w.bus.group = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: reasonPlacesNotFound, Message: "places were found for 5 of 6"}}, nil
	}

	for cycle := 1; cycle <= plansBeforeOthers; cycle++ {
		_, status := w.gang(c)

		want := fwk.UnschedulableAndUnresolvable
		if cycle == plansBeforeOthers {
			want = fwk.Unschedulable
		}
		if status.Code() != want || !strings.Contains(status.Message(), "places were found for 5 of 6") {
			t.Errorf("cycle %d: %v", cycle, status)
		}
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("the group is not tried again")
	}
}

func TestARefusalWithoutANodeThatFailedIsNotFinal(t *testing.T) {
	w, c := gangWorld(t, setup{}, 1, 1, gangMember("g1"))
	w.bus.group = func(q *wire.PlanRequest) (*wire.PlanReply, error) {
		if nodes := q.Classes[0].Nodes; nodes.AllBut != slices.Contains(nodes.Names, "n1") {
			wrong := gangPlan("n1")
			wrong.Victims = nil // the planner does not see that v1 is in the way
			return &wire.PlanReply{Plan: wrong}, nil
		}
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "NoPotentialNodes", Message: "no node may be helped"}}, nil
	}

	for cycle := 1; cycle <= plansBeforeOthers; cycle++ {
		_, status := w.gang(c)

		want := fwk.UnschedulableAndUnresolvable
		if cycle == plansBeforeOthers {
			want = fwk.Unschedulable
		}
		if status.Code() != want || !strings.Contains(status.Message(), "without nodes where a plan failed verification (1): no node may be helped") {
			t.Errorf("cycle %d: %v", cycle, status)
		}
	}
	if w.plugin.engine.memory.Retries.Count() != 1 {
		t.Error("the group is not tried again")
	}
}

// steadily refuses a gang until PriorityClass steady changes.
func steadily(*wire.PlanRequest) (*wire.PlanReply, error) {
	return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "ForbiddenByPolicy", Message: "no", DependsOn: steadyClass}}, nil
}

func TestALateAnswerHasAGangTriedAgainThoughItsFirstMemberWaitsNoMore(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			g1, g2 := gangMember("g1"), gangMember("g2")
			w, c := gangWorld(t, setup{leastWait: time.Millisecond}, 1, 1, g1, g2)
			answer := make(chan struct{})
			w.bus.group = func(request *wire.PlanRequest) (*wire.PlanReply, error) {
				<-answer
				return steadily(request)
			}
			w.gang(c)
			if w.plugin.engine.planner.Late.Of("gang-uid") == nil {
				t.Fatal("its question is not kept")
			}

			end(w, g1)
			w.eventually("it waits no more", func() bool {
				known := w.plugin.engine.current(orders.RefOf(g1))
				return known == nil || known.Spec.NodeName != ""
			})
			close(answer)

			w.eventually("it is tried again", func() bool { return w.activator.of("g2") > 0 })
		})
	}
}

func TestAPanicEndsAsUnschedulable(t *testing.T) {
	w, c := gangWorld(t, setup{}, 1, 1, gangMember("g1"))
	w.bus.group = func(*wire.PlanRequest) (*wire.PlanReply, error) { panic("planner") }

	nodes, status := w.gang(c)

	if nodes != nil || status.Code() != fwk.Unschedulable {
		t.Errorf("%v, %v", nodes, status)
	}
}

func TestARestartedSchedulerAdoptsTheOrderOfAGang(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 2, 2, g1, g2)
	w.groupStored(0)
	if w.groupGated(g1) {
		t.Error("held before its first cycle: a gated pod is not entered into the nominator")
	}

	nodes, status := w.gang(c)

	if want := map[string]string{"g1": "n1", "g2": "n2"}; !status.IsSuccess() || !maps.Equal(named0(nodes), want) {
		t.Fatalf("%v, %v; want %v", named0(nodes), status, want)
	}
	if !w.groupGated(g2) || len(w.bus.asked) != 0 {
		t.Error("a gang with an order is held, and no other plan asked for")
	}
}

// groupStored puts an order of gang "gang" into the stream as another process would have so long ago, for members g1 on n1 and g2 on n2; v1 is its victim.
func (w *world) groupStored(age time.Duration) *wire.EvictionOrder {
	w.t.Helper()
	now := time.Now()
	order := &wire.EvictionOrder{
		OrderID: wire.NewOrderID(now), Kind: wire.KindGroup, ClusterUID: "cluster", Writer: "other", CreatedAt: wire.At(now.Add(-age)), NotAfter: wire.At(now.Add(time.Minute)),
		Fence:   wire.Fence{Kind: "kv", Name: "x", Epoch: 1},
		Group:   &wire.OrderedGroup{Namespace: "default", Name: "gang", UID: "gang-uid", Priority: high, SchedulerName: "default-scheduler", MustPlace: 2},
		Members: []wire.Placement{{Namespace: "default", Name: "g1", UID: "g1", Node: "n1"}, {Namespace: "default", Name: "g2", UID: "g2", Node: "n2"}},
		Victims: []wire.Victim{{Namespace: "default", Name: "v1", UID: "v1", Node: "n1", Rule: verify.RuleLowerPriority}},
	}
	data, err := wrapOrder(order, "other")
	if err != nil {
		w.t.Fatal(err)
	}
	w.bus.put("makeway.v1.orders.group.gang-uid", data)
	w.eventually("it is adopted", func() bool { return w.plugin.engine.inflight.HasOrder(order.OrderID) })
	return order
}

func TestAGangWhoseNominationsHaveNotShownWithinAMinuteIsPlannedForAnew(t *testing.T) {
	w, c := gangWorld(t, setup{}, 2, 2, gangMember("g1"), gangMember("g2"))
	w.end(w.groupStored(time.Minute-time.Second), wire.ResultSucceeded)
	w.eventually("its victims leave", func() bool { return w.entry("gang-uid").Phase == orders.Leaving })
	if w.gang(c); len(w.bus.asked) != 0 {
		t.Fatal("a plan was asked for while its nominations may not show yet")
	}

	w.eventually("a plan is asked for", func() bool { w.gang(c); return len(w.bus.asked) == 1 })
}

// missingLong has a gang have too few pods for long enough by now.
func (w *world) missingLong() {
	w.plugin.engine.lookForMembers(w.ctx, time.Now().Add(-orders.MissingLasts))
	w.plugin.engine.lookForMembers(w.ctx, time.Now())
}

func TestAGangThatLosesAMemberForGoodLeavesNoNominationBehind(t *testing.T) {
	for name, adopted := range map[string]bool{"own order": false, "order of a scheduler before": true} {
		t.Run(name, func(t *testing.T) {
			g1, g2, g3 := gangMember("g1"), gangMember("g2"), gangMember("g3")
			// From the first on: an event from before a nomination would be taken for its loss.
			g1.Status.NominatedNodeName, g2.Status.NominatedNodeName = "n1", "n2"
			w, c := gangWorld(t, setup{gangSize: func(string, string) (there, needed int) { return 2, 3 }}, 2, 2, g1, g2)
			w.bus.group = plans(gangPlan("n1", "n2"))
			if adopted {
				w.end(w.groupStored(0), wire.ResultSucceeded)
			} else {
				w.gang(c)
				w.end(w.order(1), wire.ResultSucceeded)
			}
			w.delete(g2)
			w.delete(pod("v1", "n1", low, whole).Obj())
			w.delete(pod("v2", "n2", low, whole).Obj())
			w.eventually("the room is made", func() bool { return len(w.plugin.engine.inflight.ReleasedGroups()) == 1 })

			w.missingLong()

			w.eventually("the order is over", func() bool { return w.entry("gang-uid") == nil })
			w.eventually("no nomination is left", func() bool {
				p, err := w.plugin.engine.cluster.pods.Pods("default").Get("g1")
				return err == nil && p.Status.NominatedNodeName == "" && len(w.plugin.engine.inflight.Nominated()) == 0
			})
			if minor.GroupName(g1) != "" && w.gated(g3) {
				t.Error("a member that is made later is held")
			}
			recorder, ok := w.framework.EventRecorder().(*events.FakeRecorder)
			if !ok {
				t.Fatal("no recorder of a test")
			}
			if told := <-recorder.Events; !strings.Contains(told, "RoomGivenUp 2 of the 3 pods that the gang needs are there") {
				t.Errorf("the Event is %q", told)
			}
		})
	}
}

func TestPlansForGangsThatComeTooLateKeepNoPodFromBeingPlannedFor(t *testing.T) {
	w, c := gangWorld(t, setup{}, 2, 1, gangMember("g1"))
	w.bus.group = func(*wire.PlanRequest) (*wire.PlanReply, error) { return nil, context.DeadlineExceeded }

	for range 3 {
		w.gang(c)
	}

	if len(w.bus.asked) != 1 {
		t.Errorf("asked %d times about the gang, want 1", len(w.bus.asked))
	}
	if state, _ := w.plugin.engine.planner.Pods.Current(); state != telemetry.Closed {
		t.Errorf("the breaker for pods is in state %d", state)
	}
	if got := w.bus.asked[0].TimeoutMilliseconds; got != w.plugin.args.GroupPlanTimeout.Milliseconds() || got < 1000 {
		t.Errorf("a plan for a gang may take %d ms", got)
	}
	if pods, groups := shown(t, "breaker_state"), shown(t, "group_breaker_state"); pods != 0 || groups != 2 {
		t.Errorf("the metrics show %v for pods and %v for groups", pods, groups)
	}
}

// shown is what a gauge of the plugin shows on kube-scheduler's own /metrics.
func shown(t *testing.T, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "makeway_scheduler_"+name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

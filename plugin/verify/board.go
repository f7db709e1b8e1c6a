package verify

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// board is the nodes in a trial, of which pods are taken out and to which they are put back: a pod's trial has a copy of one node, a
// group's the cycle's snapshot while it is changed.
type board interface {
	Nodes() fwk.NodeInfoLister
	Remove(ctx context.Context, pod *v1.Pod, node string) error
	Add(pod fwk.PodInfo, node string) error
	// Assume has a member be on its node until Forget.
	Assume(ctx context.Context, member minor.Assignment) *fwk.Status
	Forget(ctx context.Context, member minor.Assignment) error
}

// nodeCopy is a board of one node. As upstream, pods on other nodes only leave the preemptor's state: the filters look at this node alone.
type nodeCopy struct {
	fwk.NodeInfoLister
	node fwk.NodeInfo
}

// Nodes implements board.
func (c *nodeCopy) Nodes() fwk.NodeInfoLister { return c }

// Get implements fwk.NodeInfoLister.
func (c *nodeCopy) Get(name string) (fwk.NodeInfo, error) {
	if name == c.node.Node().Name {
		return c.node, nil
	}
	return c.NodeInfoLister.Get(name)
}

// Remove implements board.
func (c *nodeCopy) Remove(ctx context.Context, pod *v1.Pod, node string) error {
	if node != c.node.Node().Name {
		return nil
	}
	return c.node.RemovePod(klog.FromContext(ctx), pod)
}

// Add implements board.
func (c *nodeCopy) Add(pod fwk.PodInfo, node string) error {
	if node == c.node.Node().Name {
		c.node.AddPodInfo(pod)
	}
	return nil
}

// Assume implements board. No member is placed after the only one.
func (c *nodeCopy) Assume(context.Context, minor.Assignment) *fwk.Status { return nil }

// Forget implements board.
func (c *nodeCopy) Forget(context.Context, minor.Assignment) error { return nil }

// removal is what leaves together: a pod by itself, or all pods of a unit.
type removal struct {
	infos   []fwk.PodInfo
	nodes   []string // of each pod
	victims []Victim // one a pod; none where a pod leaves anyway
	orderID string   // of the order that removes a pod that leaves anyway; empty for a terminating one
}

// violates reports whether its removal violates a budget.
func (r *removal) violates() bool {
	return slices.ContainsFunc(r.victims, func(v Victim) bool { return v.Violating })
}

// dryRun is one try of a plan: where members are placed while pods leave. A pod is its only member.
type dryRun struct {
	*Verifier
	board
	members []minor.Assignment // in the order in which they are placed
	// known reports whether the members are placed with what was put back there, where their states do not tell; nil: they do.
	known func(context.Context) (bool, error)
}

// take takes a removal out, and has the states of some members know.
func (t *dryRun) take(ctx context.Context, out *removal, members []minor.Assignment) error {
	for i, info := range out.infos {
		if err := t.Remove(ctx, info.GetPod(), out.nodes[i]); err != nil {
			return err
		}
	}
	return t.tell(ctx, out, members, t.Handle.RunPreFilterExtensionRemovePod)
}

// put puts a removal back, and has the states of some members know.
func (t *dryRun) put(ctx context.Context, out *removal, members []minor.Assignment) error {
	for i, info := range out.infos {
		if err := t.Add(info, out.nodes[i]); err != nil {
			return err
		}
	}
	return t.tell(ctx, out, members, t.Handle.RunPreFilterExtensionAddPod)
}

// tell has the filter states of members know what was put back or taken out: each state is of one member.
func (t *dryRun) tell(ctx context.Context, out *removal, members []minor.Assignment, each tellPod) error {
	for i, info := range out.infos {
		node, err := t.Nodes().Get(out.nodes[i])
		if err != nil {
			return err
		}
		for _, one := range members {
			if status := each(ctx, one.State, one.Pod, info, node); !status.IsSuccess() {
				return status.AsError()
			}
		}
	}
	return nil
}

// tellPod is RunPreFilterExtensionAddPod or RunPreFilterExtensionRemovePod.
type tellPod = func(ctx context.Context, state fwk.CycleState, member *v1.Pod, pod fwk.PodInfo, node fwk.NodeInfo) *fwk.Status

// fit runs the profile's filters for each member on its node, with the pods nominated there and without them, and with the members before
// it there. `rejected` is the first answer that is no success.
func (t *dryRun) fit(ctx context.Context, members []minor.Assignment) (rejected *fwk.Status, err error) {
	placed := 0
	defer func() {
		for _, one := range slices.Backward(members[:placed]) {
			err = errors.Join(err, t.Forget(ctx, one))
		}
	}()
	for _, one := range members {
		node, err := t.Nodes().Get(one.Node)
		if err != nil {
			return nil, err
		}
		if status := t.Handle.RunFilterPluginsWithNominatedPods(ctx, one.State, one.Pod, node); !status.IsSuccess() {
			return status, nil
		}
		switch status := t.Assume(ctx, one); {
		case status.IsRejected():
			return status, nil
		case !status.IsSuccess():
			return nil, status.AsError()
		}
		placed++
	}
	return nil, nil
}

// settle gives back what need not leave, and enters into a candidate what does, and where the members are. What is not offered back by a
// time, zero for none, leaves as planned; all reports whether everything was offered.
func (t *dryRun) settle(ctx context.Context, removed []*removal, until time.Time, result *Candidate) (all bool, err error) {
	going, all, err := t.giveBack(ctx, removed, until)
	if err != nil {
		return false, err
	}
	t.goes(result, going...)
	for _, one := range t.members {
		node, err := t.Nodes().Get(one.Node)
		if err != nil {
			return false, err
		}
		result.Places = append(result.Places, wire.Placement{
			Namespace: one.Pod.Namespace, Name: one.Pod.Name, UID: string(one.Pod.UID), Node: one.Node, NodeUID: string(node.Node().UID),
		})
	}
	return all, nil
}

// goes enters into a candidate what leaves. A victim that is terminating by now is awaited.
func (t *dryRun) goes(result *Candidate, going ...*removal) {
	for _, out := range going {
		if len(out.victims) == 0 {
			result.Awaited = append(result.Awaited, Awaited{Pod: out.infos[0].GetPod(), OrderID: out.orderID})
		}
		for _, one := range out.victims {
			if terminating(one.Pod, t.Now) {
				result.Awaited = append(result.Awaited, Awaited{Pod: one.Pod})
			} else {
				result.Victims = append(result.Victims, one)
			}
		}
	}
}

// giveBack puts back what was taken out, one removal after the other, where all members fit with it, and returns the rest.
// O(removals · members beside them · filters), and all members for what stays.
func (t *dryRun) giveBack(ctx context.Context, removed []*removal, until time.Time) (going []*removal, all bool, err error) {
	all = true
	for _, out := range removed {
		stays := false
		if all = all && ctx.Err() == nil && (until.IsZero() || time.Now().Before(until)); all {
			if stays, err = t.mayStay(ctx, out); err != nil {
				return nil, false, err
			}
		}
		if !stays {
			going, all = append(going, out), all && ctx.Err() == nil
		}
	}
	if len(going) < len(removed) && t.known != nil {
		if known, err := t.known(ctx); err != nil || !known {
			return removed, all, err
		}
	}
	return going, all, nil
}

// mayStay puts a removal back and reports whether all members fit with it; else it is taken out again. Those on its nodes are asked
// first: it has to leave for one of them, nearly always.
func (t *dryRun) mayStay(ctx context.Context, out *removal) (stays bool, err error) {
	beside, others := t.beside(out)
	if err := t.put(ctx, out, beside); err != nil {
		return false, err
	}
	told := beside
	rejected, err := t.fit(ctx, beside)
	if rejected == nil && err == nil && len(others) > 0 {
		if err := t.tell(ctx, out, others, t.Handle.RunPreFilterExtensionAddPod); err != nil {
			return false, err
		}
		told = t.members
		rejected, err = t.fit(ctx, told)
	}
	if err != nil || rejected == nil {
		return rejected == nil, err
	}
	return false, t.take(ctx, out, told)
}

// beside divides the members into those that are placed on the nodes of a removal, and the others.
func (t *dryRun) beside(out *removal) (beside, others []minor.Assignment) {
	if len(t.members) == 1 {
		return t.members, nil
	}
	on := sets.New(out.nodes...)
	for _, one := range t.members {
		if on.Has(one.Node) {
			beside = append(beside, one)
		} else {
			others = append(others, one)
		}
	}
	return beside, others
}

// cluster finds the pods of nodes; those of a node are entered when it is first looked at.
type cluster struct {
	nodes fwk.NodeInfoLister
	pods  map[string]map[types.UID]fwk.PodInfo
}

// on are the pods of a node by UID; none where there is no such node. O(pods) the first time.
func (c *cluster) on(name string) map[types.UID]fwk.PodInfo {
	if found, ok := c.pods[name]; ok {
		return found
	}
	found := map[types.UID]fwk.PodInfo{}
	if node, err := c.nodes.Get(name); err == nil {
		found = make(map[types.UID]fwk.PodInfo, len(node.GetPods()))
		for _, info := range node.GetPods() {
			found[info.GetPod().UID] = info
		}
	}
	c.pods[name] = found
	return found
}

// inUnits divides what may be removed into pods by themselves and units, each where its first pod was.
func inUnits(removable []wire.Removable) (blocks [][]wire.Removable) {
	at := map[string]int{}
	for i, one := range removable {
		if first, ok := at[one.Unit]; ok && one.Unit != "" {
			blocks[first] = append(blocks[first], one)
			continue
		}
		if one.Unit != "" {
			at[one.Unit] = len(blocks)
		}
		blocks = append(blocks, removable[i:i+1:i+1])
	}
	return blocks
}

// removal finds the pods of a block, on the preemptor's node where the block names none; a pod's own node is empty for a group. `why` says
// what is wrong with one of them: then none is removed.
func (v *Verifier) removal(block []wire.Removable, node string, there *cluster) (together *removal, why string) {
	together = &removal{infos: make([]fwk.PodInfo, 0, len(block)), nodes: make([]string, 0, len(block)), victims: make([]Victim, 0, len(block))}
	for _, one := range block {
		at := node
		if one.Node != "" && (one.Unit != "" || node == "") {
			at = one.Node
		}
		info := there.on(at)[types.UID(one.UID)]
		switch {
		case info == nil:
			return nil, "has left its node"
		case !v.mayRemove(info.GetPod(), one.Rule, node):
			return nil, "may not be evicted for this group"
		}
		together.infos, together.nodes = append(together.infos, info), append(together.nodes, at)
		together.victims = append(together.victims, Victim{Pod: info.GetPod(), Violating: one.PDBViolating, Unit: one.Unit, LostWork: one.LostWork})
	}
	return together, ""
}

// awaited returns the orders that remove the pods on which a plan counts; empty where none does.
func (v *Verifier) awaited(named []wire.Awaited) map[types.UID]string {
	found := make(map[types.UID]string, len(named))
	for _, one := range named {
		found[types.UID(one.UID)] = ""
		if one.OrderID != "" {
			found[types.UID(one.UID)] = v.Remover(one.OrderID, types.UID(one.UID))
		}
	}
	return found
}

// removedBy returns the succeeded order that has removed a pod, which its kubelet may have to end still; empty where none has, and for the
// preemptor's own group, whose pods count as leaving only where the plan says so.
func (v *Verifier) removedBy(pod *v1.Pod) string {
	if overdue(pod, v.Now) || v.isOwn(pod) {
		return ""
	}
	return v.Left[pod.UID]
}

// leaving returns a pod that leaves without an order of this preemptor; nil for one that stays. `orderID`: of the order that removes it.
func (v *Verifier) leaving(info fwk.PodInfo, node, orderID string) *removal {
	pod := info.GetPod()
	if orderID = cmp.Or(orderID, v.removedBy(pod)); terminating(pod, v.Now) && !v.isOwn(pod) {
		orderID = ""
	} else if orderID == "" {
		return nil
	}
	return &removal{infos: []fwk.PodInfo{info}, nodes: []string{node}, orderID: orderID}
}

// isOwn reports whether a pod is of the preemptor's own group.
func (v *Verifier) isOwn(pod *v1.Pod) bool {
	group := minor.GroupName(v.Pod)
	return group != "" && pod.Namespace == v.Pod.Namespace && minor.GroupName(pod) == group
}

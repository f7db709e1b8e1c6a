package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// groupPlans is how many plans are asked for in one cycle: where the first does not stand, one without the node where it failed.
const groupPlans = 2

// plansBeforeOthers is how many cycles in a row may end with a plan that does not stand, before a plugin after this one may act. The first
// ones say little: the planner sees the cluster a moment later than the scheduler, and a node that failed is left out of the next plan.
// kube-scheduler's own preemption knows no policy, so what it takes is more than a plan's delay is worth.
const plansBeforeOthers = 3

// reasonPlacesNotFound is the planner's where it has found no places for a group's members, and does not know that there are none: they
// are of several kinds, or a rule wider than a node or a group that goes whole ties them. The scheduler's own algorithm may find some.
const reasonPlacesNotFound = "PlacesNotFound"

// groupAttempt is one group's preemption in one cycle.
type groupAttempt struct {
	*preemptor
	cycle   minor.GroupCycle
	of      minor.Group
	classes []*ask.Class
	leftOut sets.Set[string] // nodes where the scheduler's filters refused a member
}

// preemptForGroup decides about one pod group that does not fit, as PostFilter does about a pod. What each ending means is in
// status.go. With Success it returns the nodes that members are nominated to.
func (pl *MakeWay) preemptForGroup(ctx context.Context, cycle minor.GroupCycle) (nodes map[types.NamespacedName]string, status *fwk.Status) {
	again := false
	end, without := pl.try(ctx, groupAttemptsTotal, groupPostFilterDuration, func(without *unplanned) (end preemptResult) {
		group := cycle.Group()
		if len(group.Waiting) == 0 {
			*without = leftToOthers
			return preemptResult{kind: endError, message: "no member of the group waits"}
		}
		a := pl.groupAttempt(cycle, group)
		*without = pl.withoutPlan(group.Namespace, a.group.Priority)
		end, nodes = a.preempt(ctx)
		a.clearUnfounded(end)
		a.attempted(end)
		again = end.kind == endUnfinished && pl.engine.memory.Retries.Unplanned(types.UID(a.one().UID)) < plansBeforeOthers
		return end
	})
	switch status = end.groupStatus(); {
	case status.Code() == fwk.Unschedulable && again:
		status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: "+end.message+"; another plan is made")
	case status.Code() == fwk.Unschedulable:
		status = without.status(end)
	}
	if !status.IsSuccess() {
		nodes = nil
	}
	return nodes, status
}

// groupAttempt is an attempt for the members that wait, whose priority kube-scheduler sees to be the group's. Of those so many have to get
// a node as a gang's minCount lacks, and one at least.
func (pl *MakeWay) groupAttempt(cycle minor.GroupCycle, group minor.Group) *groupAttempt {
	first := group.Waiting[0]
	ordered := &wire.OrderedGroup{
		Namespace: group.Namespace, Name: group.Name, UID: string(group.UID), Priority: corev1helpers.PodPriority(first), SchedulerName: first.Spec.SchedulerName,
		MustPlace: int64(max(1, group.MinCount-len(group.Placed))), MinCount: int64(group.MinCount),
	}
	p := &preemptor{MakeWay: pl, uid: group.UID, pods: group.Waiting, group: ordered, mode: pl.mode(first)}
	return &groupAttempt{preemptor: p, cycle: cycle, of: group}
}

// preempt asks the planner and verifies within bounds of time, and writes nothing: the order is committed outside the cycle.
func (a *groupAttempt) preempt(ctx context.Context) (result preemptResult, nodes map[types.NamespacedName]string) {
	// 1) Ensure the group may preempt: it has no order in flight, and no victims are leaving for it.
	if end, ordered := a.ineligible(a.excluded(), func(string) bool { return false }); end != nil {
		return *end, a.nominations(ordered)
	}

	// 2) Ensure that neither its PriorityClass lets it wait for nodes first, nor orders are held back.
	if end := a.held(); end != nil {
		return *end, nil
	}

	// 3) Put the members into classes, and find the nodes where preemption may help each.
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout+groupPlans*a.args.GroupPlanTimeout.Duration)
	defer cancel()
	if end := a.classify(ctx); end != nil {
		return *end, nil
	}

	planner := a.engine.planner
	ctx, a.span = a.engine.goOn(ctx, nil, klog.KRef(a.of.Namespace, a.of.Name), a.uid)
	defer func() { a.endSpan(result) }()

	if a.mode == wire.ModeObserve {
		return *a.observe(a.exchange), nil
	}

	a.waitFor(planner.Groups, groupPlanOf(a.classes, a.mode),
		cycleOf(a.cycle.State()).taken(), min(ask.MostGroupWait, a.args.GroupPlanTimeout.Duration))

	// 4) Ask for a plan, and have the scheduler place the group by it; once more without the node where that fails.
	verified, reply, end := a.find(ctx)
	if end != nil {
		return *end, nil
	}

	// 5) Nominate the members; the order is committed outside the cycle.
	a.engine.verified.failures.Forget(string(a.uid))
	return a.nominate(verified, reply), a.placements(verified)
}

// excluded ends what is not planned for whatever the cluster is like.
func (a *groupAttempt) excluded() *preemptResult {
	switch {
	case a.of.Composite:
		return &preemptResult{kind: endPodGroup, message: "composite pod groups have no plan"}
	case a.of.NeverPreempts:
		return &preemptResult{kind: endNever, message: "not eligible due to preemptionPolicy=Never"}
	}
	return nil
}

// nominations are those of the group's order, or else those that the API shows.
func (a *groupAttempt) nominations(ordered bool) map[types.NamespacedName]string {
	nodes := map[types.NamespacedName]string{}
	if ordered {
		for _, place := range a.engine.inflight.PlacesOf(a.uid) {
			nodes[types.NamespacedName{Namespace: place.Namespace, Name: place.Name}] = place.Node
		}
		return nodes
	}
	for _, pod := range a.pods {
		if node := pod.Status.NominatedNodeName; node != "" {
			nodes[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = node
		}
	}
	return nodes
}

// classify puts the members into classes, each with the nodes that removing pods may help.
func (a *groupAttempt) classify(ctx context.Context) *preemptResult {
	var err error
	if a.classes, err = ask.Classes(a.pods, queues.QueueLabels(), a.engine.cluster.claims.Reach); err != nil {
		return a.later(endTooLarge, err.Error())
	}
	if len(a.of.Topology) > wire.MostTopologyKeys {
		return a.later(endTooLarge, fmt.Sprintf("the group names %d topology keys, at most %d are planned for", len(a.of.Topology), wire.MostTopologyKeys))
	}
	if err := a.findNodes(ctx, a.cycle, a.classes); err != nil {
		return a.later(endError, err.Error())
	}
	a.leftOut = sets.KeySet(a.failedBefore(func() string { return string(a.uid) }))
	hosts := 0
	for _, class := range a.classes {
		if class.Potential.Count > 0 {
			hosts += len(class.Pods)
		}
	}
	if int64(hosts) < a.group.MustPlace {
		return &preemptResult{kind: endHopeless, message: fmt.Sprintf("preemption would not help: %d members must be placed, and for %d there is a node where removing pods may help", a.group.MustPlace, hosts)}
	}
	return nil
}

// find returns a plan by which the scheduler's own algorithm placed the group; the result says why there is none.
func (a *groupAttempt) find(ctx context.Context) (*verify.Candidate, *wire.PlanReply, *preemptResult) {
	for asked := 1; ; asked++ {
		reply, end := a.answer(ctx, nil, a.exchange)
		switch {
		case end != nil:
			return nil, nil, end
		case reply.Status == wire.StatusRefused || reply.Plan == nil:
			return nil, nil, a.refusal(reply)
		}
		verified, err := a.verify(ctx, reply.Plan)
		if err == nil {
			return verified, reply, nil
		}
		var why *verify.Misfit
		if !errors.As(err, &why) {
			return nil, nil, a.later(endError, wire.Beginning(err.Error(), wire.MostOfMessage))
		}
		if a.outdated() && mayAsk(ctx, a.args.GroupPlanTimeout.Duration) {
			continue
		}
		if why.Node != "" { // neither in this cycle's next plan, nor in those to come until it changes
			a.leftOut.Insert(why.Node)
			a.failedNow(string(a.uid), why.Node, why.Failure)
		}
		if why.Node == "" || asked == groupPlans || !mayAsk(ctx, a.args.GroupPlanTimeout.Duration) {
			return nil, nil, a.later(endUnfinished, "the plan failed verification: "+wire.Beginning(why.Message, wire.MostOfMessage))
		}
	}
}

// verify has the scheduler place the group by a plan.
func (a *groupAttempt) verify(ctx context.Context, plan *wire.GroupPlan) (*verify.Candidate, error) {
	start := time.Now()
	defer func() { verificationDuration.Observe(time.Since(start).Seconds()) }()
	v := verify.GroupVerifier{
		Verifier: verify.Verifier{
			Handle: a.handle, Pod: a.pods[0], Now: a.engine.clock.Now(), Remover: a.engine.inflight.Remover, Left: a.engine.inflight.Left(),
		},
		Cycle: a.cycle, Waiting: a.pods, MustPlace: int(a.group.MustPlace),
	}
	for _, class := range a.classes {
		v.Classes = append(v.Classes, class.Pods)
	}
	return v.Verify(ctx, plan)
}

// refusal ends an attempt that the planner has refused.
func (a *groupAttempt) refusal(reply *wire.PlanReply) *preemptResult {
	refusal, message := cmp.Or(reply.Refusal, &wire.Refusal{}), messageOf(reply.Refusal)
	switch {
	case refusal.Reason == reasonPlacesNotFound:
		return a.later(endUnfinished, message)
	case len(a.leftOut) > 0:
		// The planner refuses without nodes that it was not asked about: other victims there might do, and no event tells when
		// they may be tried again.
		return a.later(endUnfinished, fmt.Sprintf("without nodes where a plan failed verification (%d): %s", len(a.leftOut), message))
	}
	return a.refused(refusal, retryAtOf(refusal), message)
}

// placements are the nodes of the members that were placed. Those without a place are nominated nowhere any more.
func (a *groupAttempt) placements(verified *verify.Candidate) map[types.NamespacedName]string {
	nodes := make(map[types.NamespacedName]string, len(a.pods))
	for _, pod := range a.pods {
		if pod.Status.NominatedNodeName != "" {
			nodes[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = ""
		}
	}
	for _, place := range verified.Places {
		nodes[types.NamespacedName{Namespace: place.Namespace, Name: place.Name}] = place.Node
	}
	return nodes
}

// clearUnfounded takes nominations back in the API that a refused group's members still have.
func (a *groupAttempt) clearUnfounded(end preemptResult) {
	stale := slices.DeleteFunc(slices.Clone(a.pods), func(pod *v1.Pod) bool { return pod.Status.NominatedNodeName == "" })
	if len(stale) > 0 && (end.kind == endRefused || end.kind == endHopeless) {
		goroutines.GoRecovered(a.engine.life, "clear", func(ctx context.Context) { a.engine.clearNominations(ctx, stale) })
	}
}

// findNodes runs the scheduler's filters for one member of each class on every node: those that answer UnschedulableAndUnresolvable
// are out whatever pods go. The cycle hands in no statuses of its own. O(classes · nodes · filters).
func (pl *MakeWay) findNodes(ctx context.Context, cycle minor.GroupCycle, classes []*ask.Class) error {
	all, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	ctx = verify.WithPins(ctx, &verify.Pins{Probe: true})
	for _, class := range classes {
		state, only, status := cycle.Filters(ctx, class.Pods[0])
		switch {
		case status.Code() == fwk.UnschedulableAndUnresolvable:
			continue
		case status.IsRejected():
			class.Potential = ask.Potential{Count: len(all), Nodes: wire.NodeSelection{AllBut: true}}
			continue
		case !status.IsSuccess():
			return fmt.Errorf("filters of member %s: %w", class.Pods[0].Name, status.AsError())
		}
		helps := make([]bool, len(all))
		pl.handle.Parallelizer().Until(ctx, len(all), func(i int) {
			if only != nil && !only.Has(all[i].Node().Name) {
				return
			}
			status := pl.handle.RunFilterPlugins(ctx, state, class.Pods[0], all[i])
			helps[i] = status.IsSuccess() || status.Code() == fwk.Unschedulable
		}, Name)
		if ctx.Err() != nil {
			return fmt.Errorf("filters of member %s: %w", class.Pods[0].Name, ctx.Err())
		}
		chosen := make([]fwk.NodeInfo, 0, len(all))
		for i, node := range all {
			if helps[i] {
				chosen = append(chosen, node)
			}
		}
		class.Potential = ask.Potential{Count: len(chosen), Nodes: ask.SelectNodes(all, chosen)}
	}
	return nil
}

// asks is the question about the members, on the nodes where no plan has failed.
func (a *groupAttempt) asks() ask.Question {
	nodes := a.handle.SnapshotSharedLister().NodeInfos()
	q := ask.Question{Mode: a.mode, Group: &a.of, Priority: a.group.Priority, MustPlace: int(a.group.MustPlace)}
	for _, class := range a.classes {
		q.Classes = append(q.Classes, &ask.Class{Pods: class.Pods, Potential: class.Potential.Without(a.leftOut, nodes)})
	}
	return q
}

// exchange returns what asks and waits for the answer.
func (a *groupAttempt) exchange() (ask.Exchange, error) { return a.question(a.asks(), false) }

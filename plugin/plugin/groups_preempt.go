package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
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
	cycle     minor.GroupCycle
	group     minor.Group
	priority  int32
	mustPlace int
	classes   []*ask.Class
	leftOut   []map[string]bool // by class: nodes where the scheduler's filters refused a member
	inquirer  *inquirer[wire.GroupPlanReply]
}

// preemptForGroup decides about one pod group that does not fit, as PostFilter does about a pod. What each ending means is in
// status.go. With Success it returns the nodes that members are nominated to.
func (pl *MakeWay) preemptForGroup(ctx context.Context, cycle minor.GroupCycle) (nodes map[types.NamespacedName]string, status *fwk.Status) {
	start := time.Now()
	panicked := preemptResult{kind: endPanic, message: "a panic was recovered, see the scheduler's log"}
	end, without, again := panicked, notFound, false
	defer func() {
		groupAttemptsTotal.WithLabelValues(string(end.kind)).Inc()
		groupPostFilterDuration.Observe(time.Since(start).Seconds())
		switch status = end.groupStatus(); {
		case status.Code() == fwk.Unschedulable && again:
			status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: "+end.message+"; another plan is made")
		case status.Code() == fwk.Unschedulable:
			status = without.status(end)
		}
		if !status.IsSuccess() {
			nodes = nil
		}
	}()
	// The scheduler itself would end by a panic here.
	defer goroutines.RecoverPanic(ctx, "post_filter", func() { end = panicked })
	group := cycle.Group()
	if len(group.Waiting) == 0 {
		end, without = preemptResult{kind: endError, message: "no member of the group waits"}, leftToOthers
		return nil, nil
	}
	without = pl.withoutPlan(group.Namespace, priorityOf(group))
	p := &preemptor{MakeWay: pl, uid: group.UID, pods: group.Waiting, mode: pl.mode(group.Waiting[0])}
	a := &groupAttempt{preemptor: p, cycle: cycle, group: group, priority: priorityOf(group), mustPlace: mustPlaceOf(group)}
	end, nodes = a.preempt(ctx)
	a.clearUnfounded(end)
	a.attempted(end)
	again = end.kind == endUnfinished && pl.engine.memory.Retries.Unplanned(group.Waiting[0].UID) < plansBeforeOthers
	return nodes, nil // end says it
}

// preempt asks the planner and verifies within bounds of time, and writes nothing: the order is committed outside the cycle.
func (a *groupAttempt) preempt(ctx context.Context) (result preemptResult, nodes map[types.NamespacedName]string) {
	// 1) Ensure the group may preempt: it has no order in flight, and no victims are leaving for it.
	if end, nodes := a.ineligible(); end != nil {
		return *end, nodes
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
	ctx, a.span = a.engine.goOn(ctx, planner.LateGroups.Span(a.group.UID), klog.KRef(a.group.Namespace, a.group.Name), a.group.UID)
	defer func() { endAttempt(a.span, result, a.inquirer != nil && a.inquirer.kept) }()

	if a.mode == wire.ModeObserve {
		return *observe(a.preemptor, a.exchange), nil
	}

	a.inquirer = waitFor(a.engine, planner.LateGroups, planner.Groups, a.group.UID, a.one(), groupPlanOf(a.classes, a.mode),
		a.groupBegan.since(a.group.Namespace+"/"+a.group.Name), min(ask.MostGroupWait, a.args.GroupPlanTimeout.Duration))
	a.inquirer.span = a.span

	// 4) Ask for a plan, and have the scheduler place the group by it; once more without the node where that fails.
	verified, reply, end := a.find(ctx)
	if end != nil {
		return *end, nil
	}

	// 5) Nominate the members; the order is committed outside the cycle.
	return a.nominate(verified, reply), a.nominations(verified)
}

// ineligible returns why a group may not preempt now, without asking the planner; nil where it may. Where its victims are on their
// way, its nominations stand.
func (a *groupAttempt) ineligible() (*preemptResult, map[types.NamespacedName]string) {
	e := a.engine
	looked := e.memory.Retries.Now()
	switch {
	case a.mode == wire.ModeOff:
		return a.modeHeld(looked, endOff, "mode off"), nil
	case e.control.HoldsGroups():
		return &preemptResult{kind: endGroupHeld, message: "groups.preemptors of the policy is hold: nothing is evicted for pod groups"}, nil
	case a.group.Composite:
		return a.modeHeld(looked, endPodGroup, "composite pod groups have no plan"), nil
	case a.group.NeverPreempts:
		return &preemptResult{kind: endNever, message: "not eligible due to preemptionPolicy=Never"}, nil
	}
	cycle := orders.FailedCycle{StillThere: a.stillThere(), Unresolvable: func(string) bool { return false }, Beside: a.nominatedBeside()}
	switch why, orderID, _ := e.inflight.Refuse(a.group.UID, e.clock.Now(), cycle); why {
	case orders.RefusedInFlight:
		return &preemptResult{kind: endInFlight, message: fmt.Sprintf("order %s for this group is in flight", orderID)}, a.ordered()
	case orders.RefusedLeaving:
		return &preemptResult{kind: endLeaving, message: fmt.Sprintf("victims of order %s are still leaving", orderID)}, a.ordered()
	case orders.RefusedBeside:
		return &preemptResult{kind: endLeaving, message: fmt.Sprintf("order %s made room; %s", orderID, leavingBeside)}, a.ordered()
	}
	return a.waitsForOthersVictims(func(string) bool { return true }), a.nominated()
}

// stillThere reports whether the cycle's snapshot has a pod, on whichever node. The snapshot is walked once, when first asked.
func (a *groupAttempt) stillThere() func(node string, uid types.UID) bool {
	var there map[types.UID]bool
	return func(_ string, uid types.UID) bool {
		if there == nil {
			there = map[types.UID]bool{}
			nodes, _ := a.handle.SnapshotSharedLister().NodeInfos().List()
			for _, node := range nodes {
				for _, pod := range node.GetPods() {
					there[pod.GetPod().UID] = true
				}
			}
		}
		return there[uid]
	}
}

// ordered are the nominations of the group's order.
func (a *groupAttempt) ordered() map[types.NamespacedName]string {
	nodes := map[types.NamespacedName]string{}
	for _, place := range a.engine.inflight.PlacesOf(a.group.UID) {
		nodes[types.NamespacedName{Namespace: place.Namespace, Name: place.Name}] = place.Node
	}
	return nodes
}

// nominated are the nominations that the API shows.
func (a *groupAttempt) nominated() map[types.NamespacedName]string {
	nodes := map[types.NamespacedName]string{}
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
	if len(a.group.Topology) > wire.MostTopologyKeys {
		return a.later(endTooLarge, fmt.Sprintf("the group names %d topology keys, at most %d are planned for", len(a.group.Topology), wire.MostTopologyKeys))
	}
	if err := a.findNodes(ctx, a.cycle, a.classes); err != nil {
		return a.later(endError, err.Error())
	}
	nodes := a.handle.SnapshotSharedLister().NodeInfos()
	failed := a.engine.verified.failures.Of(a.engine.clock.Now(), string(a.group.UID), func(node string) (int64, bool) { return generationOf(nodes, node) })
	hosts := 0
	a.leftOut = make([]map[string]bool, len(a.classes))
	for i, class := range a.classes {
		a.leftOut[i] = map[string]bool{}
		for node := range failed {
			a.leftOut[i][node] = true
		}
		if class.Potential.Count > 0 {
			hosts += len(class.Pods)
		}
	}
	if hosts < a.mustPlace {
		return &preemptResult{kind: endHopeless, message: fmt.Sprintf("preemption would not help: %d members must be placed, and for %d there is a node where removing pods may help", a.mustPlace, hosts)}
	}
	return nil
}

// find returns a plan by which the scheduler's own algorithm placed the group; the result says why there is none.
func (a *groupAttempt) find(ctx context.Context) (*verify.Candidate, *wire.GroupPlanReply, *preemptResult) {
	for asked := 1; ; asked++ {
		var reply *wire.GroupPlanReply
		var err error
		reply, a.asked, err = a.inquirer.answer(ctx, nil, a.exchange)
		if err != nil {
			return nil, nil, a.unreachable(a.engine.planner.Groups, err)
		}
		if end := a.unusable(reply); end != nil {
			return nil, nil, end
		}
		verified, err := a.verify(ctx, reply.Plan)
		if err == nil {
			return verified, reply, nil
		}
		var why *verify.Misfit
		if !errors.As(err, &why) {
			return nil, nil, a.later(endError, wire.Beginning(err.Error(), wire.MostOfMessage))
		}
		if why.Node != "" {
			a.leaveOut(why)
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
			Handle: a.handle, Pod: a.pods[0], Now: a.engine.clock.Now(), Remover: a.engine.inflight.Remover, Limited: slices.ContainsFunc(a.pods, a.engine.gate.HasMax),
		},
		Cycle: a.cycle, Waiting: a.pods, MustPlace: a.mustPlace,
	}
	for _, class := range a.classes {
		v.Classes = append(v.Classes, class.Pods)
	}
	return v.Verify(ctx, plan)
}

// leaveOut leaves a node out of this cycle's next plan, and of those to come until it changes.
func (a *groupAttempt) leaveOut(why *verify.Misfit) {
	for _, nodes := range a.leftOut {
		nodes[why.Node] = true
	}
	if generation, ok := generationOf(a.handle.SnapshotSharedLister().NodeInfos(), why.Node); ok {
		a.engine.verified.failures.Add(a.engine.clock.Now(), string(a.group.UID), why.Node, why.Failure, generation)
	}
}

// unusable ends an attempt by an answer that has no plan to verify; nil where it has.
func (a *groupAttempt) unusable(reply *wire.GroupPlanReply) *preemptResult {
	planned, refusal := reply.Status != wire.StatusRefused && reply.Plan != nil, reply.Refusal
	if end := a.unplanned(reply.Status, refusal); end != nil || planned {
		return end
	}
	if refusal == nil {
		refusal = &wire.Refusal{}
	}
	message := messageOf(reply.Refusal)
	switch {
	case refusal.Reason == reasonPlacesNotFound:
		return a.later(endUnfinished, message)
	case len(a.leftOut[0]) > 0:
		// The planner refuses without nodes that it was not asked about: other victims there might do, and no event tells when
		// they may be tried again.
		return a.later(endUnfinished, fmt.Sprintf("without nodes where a plan failed verification (%d): %s", len(a.leftOut[0]), message))
	}
	var retryAt time.Time
	if refusal.RetryAt != nil {
		retryAt = refusal.RetryAt.Time
	}
	a.engine.memory.Retries.Refuse(a.one(), a.asked, retryAt, refusal.DependsOn[:min(len(refusal.DependsOn), maxDependencies)])
	return &preemptResult{kind: endRefused, message: message}
}

// nominate marks the group as preempting, before its members come back to the queue. Where nothing has to go the nominations alone
// place the group: the scheduler looked at members one by one, and the plan at all.
func (a *groupAttempt) nominate(verified *verify.Candidate, reply *wire.GroupPlanReply) preemptResult {
	e := a.engine
	a.inquirer.late.Forget(a.uid)
	e.verified.failures.Forget(string(a.uid))
	switch {
	case verified.NeedsNothing():
		for _, pod := range a.pods {
			e.memory.Retries.Ordered(pod.UID)
		}
		a.span.End(nil, "result", endNominated)
		return preemptResult{kind: endNominated, message: fmt.Sprintf("%d members have room as planned, and no pod has to be evicted", len(verified.Places))}
	case len(verified.TerminatingAlone()) > 0:
		return a.awaits(verified.TerminatingAlone(), "", fmt.Sprintf("for %d members", len(verified.Places)))
	}
	order := &pendingOrder{
		id: wire.NewOrderID(e.clock.Now()), requestID: reply.RequestID, decisionID: reply.DecisionID, offer: reply.Offer, chosen: verified,
		group: &wire.OrderedGroup{
			Namespace: a.group.Namespace, Name: a.group.Name, UID: string(a.group.UID), Priority: a.priority,
			SchedulerName: a.pods[0].Spec.SchedulerName, MustPlace: int64(a.mustPlace), MinCount: int64(a.group.MinCount),
		},
		places: verified.Places,
	}
	if !order.isCarried() {
		return *a.later(endTooLarge, fmt.Sprintf("an order for %d members and %d victims is larger than a message of NATS", len(order.places), len(verified.Victims)))
	}
	a.begin(order)
	return preemptResult{kind: endNominated, message: fmt.Sprintf("found a placement for %d members, preempting %d pods", len(verified.Places), len(verified.Victims))}
}

// nominations are the nodes of the members that were placed. Those without a place are nominated nowhere any more.
func (a *groupAttempt) nominations(verified *verify.Candidate) map[types.NamespacedName]string {
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
			if only != nil && !only[all[i].Node().Name] {
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

// question is the group's.
func (a *groupAttempt) question() ask.GroupQuestion {
	return ask.GroupQuestion{
		Group: a.group, Priority: a.priority, MustPlace: a.mustPlace, Mode: a.mode, Classes: a.classes, LeftOut: a.leftOut,
		Nodes: a.handle.SnapshotSharedLister().NodeInfos(),
	}
}

// exchange returns what asks about the group and waits for the answer.
func (a *groupAttempt) exchange() (ask.Exchange[wire.GroupPlanReply], error) {
	known, err := a.engine.view("")
	if err != nil {
		return nil, err
	}
	request, err := a.question().Request(ask.How{Now: a.engine.clock.Now(), Timeout: max(a.args.GroupPlanTimeout.Duration, ask.AnsweredWithin), Profile: a.Profile()}, known)
	if err != nil {
		return nil, err
	}
	return a.engine.planner.PlanGroup(request)
}

// mustPlaceOf is how many of a group's members have to get a node: a gang's minCount but for those that have one, and one at least.
func mustPlaceOf(group minor.Group) int { return max(1, group.MinCount-len(group.Placed)) }

// priorityOf is that of a group's members, which kube-scheduler sees to be the group's.
func priorityOf(group minor.Group) int32 { return corev1helpers.PodPriority(group.Waiting[0]) }

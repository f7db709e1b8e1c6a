package plugin

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// plan asks for so many candidates, without the nodes that failed; the result says why there is none.
func (a *attempt) plan(ctx context.Context, candidates int) (*wire.PlanReply, *preemptResult) {
	q := a.asks(candidates)
	var asked *ask.Asked
	if a.prefetch != nil && a.prefetch.Answers(q) {
		asked = a.prefetch.Asked
	}
	a.prefetch = nil
	reply, end := a.answer(ctx, asked, func() (ask.Exchange, error) { return a.question(q, false) })
	if end != nil || len(reply.Candidates)+len(reply.Unmodelled) > 0 {
		return reply, end
	}
	refused := a.refusal(ctx, reply)
	return nil, &refused
}

// asks is the question for so many candidates, without the nodes that failed.
func (a *attempt) asks(candidates int) ask.Question {
	return ask.Question{Mode: a.mode, Classes: ask.One(a.pod, a.left()), Candidates: candidates, Full: a.full}
}

// mayAsk reports whether there is time for one more plan: one that the attempt's own end cut short would count as
// a planner's failure.
func mayAsk(ctx context.Context, planTimeout time.Duration) bool {
	deadline, _ := ctx.Deadline()
	return ctx.Err() == nil && time.Until(deadline) >= planTimeout
}

// question returns what sends a question and waits for its answer; prefetched says that it is asked while the filters run.
func (pl *MakeWay) question(q ask.Question, prefetched bool) (ask.Exchange, error) {
	known, err := pl.known()
	if err != nil {
		return nil, err
	}
	timeout := pl.args.PlanTimeout.Duration
	if q.Group != nil {
		timeout = pl.args.GroupPlanTimeout.Duration
	}
	known.TimeoutMilliseconds, known.Ahead = max(timeout, ask.AnsweredWithin).Milliseconds(), prefetched
	request, err := q.Request(known)
	if err != nil {
		return nil, err
	}
	return pl.engine.planner.Plan(request)
}

// known is a request with what this scheduler knows that the API server does not, or not yet. The sets are complete, since another planner
// may answer the next one.
func (pl *MakeWay) known() (request wire.PlanRequest, err error) {
	e := pl.engine
	request = wire.PlanRequest{
		RequestID: wire.NewRequestID(e.clock.Now()), Profile: pl.Profile(), Seen: e.planner.Seen.All(), OutcomesRead: e.planner.Seen.Outcomes(),
	}
	request.Nominations, request.Assumed = e.placements.Lists(e.inflight.Nominated())
	request.ClusterUID, err = e.control.ClusterUID()
	return request, err
}

// cycleKey is where the state of a scheduling cycle keeps a cycle.
const cycleKey fwk.StateKey = "Cycle" + Name

// cycle is what this plugin knows of a scheduling cycle, of a pod or of a group.
type cycle struct {
	began    time.Time     // when the PreFilter plugins ran, for a group those of its first member; zero where a plugin before this one has rejected the pod
	prefetch *ask.Prefetch // nil where no plan was asked for ahead
}

// Clone implements StateData.
func (c *cycle) Clone() fwk.StateData { return c }

// cycleOf is what a cycle's state keeps; empty where it keeps nothing.
func cycleOf(state minor.GroupState) *cycle {
	if state == nil {
		return &cycle{}
	}
	if kept, err := state.Read(cycleKey); err == nil {
		if c, ok := kept.(*cycle); ok {
			return c
		}
	}
	return &cycle{}
}

// taken is how long the cycle has taken so far; 0 where that is not known.
func (c *cycle) taken() time.Duration {
	if c.began.IsZero() {
		return 0
	}
	return time.Since(c.began)
}

// startPrefetch asks for a pod's plan while the scheduler's filters look at the nodes, where pods like it have needed
// one lately; nil where it does not. It never waits. Nothing that a plan depends on besides those nodes changes within a scheduling cycle, other
// than what might as well while PostFilter waits.
func (pl *MakeWay) startPrefetch(pod *v1.Pod) *ask.Prefetch {
	nodes, ok := pl.engine.planner.History.Nodes(pod)
	if !ok || !pl.mayPrefetch(pod) {
		return nil
	}
	current := pl.engine.current(orders.RefOf(pod))
	if current == nil || current.Status.NominatedNodeName != "" {
		return nil
	}
	all := pl.handle.SnapshotSharedLister().NodeInfos()
	nodes = nodes.Without(sets.KeySet(pl.failedFor(pod.UID, func() string { return verify.ClassOf(pod) })), all)
	if nodes.Count == 0 {
		return nil
	}
	q := ask.NewPrefetch(ask.Question{Mode: wire.ModeEnforce, Classes: ask.One(current, nodes), Candidates: pl.firstCandidates()}, uint64(pl.engine.memory.Retries.Now()))
	var ctx context.Context
	ctx, q.Span = pl.engine.goOn(pl.engine.life, nil, klog.KObj(pod), pod.UID)
	goroutines.GoRecovered(ctx, "plan_ahead", func(ctx context.Context) {
		q.Ask(func() (*wire.PlanReply, error) {
			exchange, err := pl.question(q.Question, true)
			if err != nil {
				return nil, err
			}
			return exchange(ctx)
		})
	})
	return q
}

// mayPrefetch reports whether PostFilter would ask for a plan, as far as is known before the filters ran.
func (pl *MakeWay) mayPrefetch(pod *v1.Pod) bool {
	if pl.mode(pod) != wire.ModeEnforce || excluded(pod) != nil || pl.asksExtenders(pod) {
		return false
	}
	if !pl.engine.unstoredUntil().IsZero() {
		return false
	}
	if until, _ := pl.engine.delayedUntil(pod); !until.IsZero() {
		return false
	}
	planner := pl.engine.planner
	breaker, _ := planner.Pods.Current()
	return breaker == telemetry.Closed && !pl.engine.remembers(pod.UID) && !pl.wouldBeDropped(planner.Pods, pod, planner.Least)
}

// finishPrefetch counts what has become of a cycle's prefetch, and ends the streak where there was no need for it.
func (pl *MakeWay) finishPrefetch(state fwk.CycleState) {
	q := cycleOf(state).prefetch
	if q == nil {
		return
	}
	plansPrefetched.WithLabelValues(q.Result).Inc()
	if q.Unneeded() {
		q.Span.End(nil, "result", q.Result)
		pl.engine.planner.History.Forget(q.Classes[0].Pods[0])
	}
}

// Labels of makeway_scheduler_late_plans_total.
const (
	lateUsed     = "used"
	lateOutdated = "outdated"
	lateExpired  = "expired"
	lateLost     = "lost"
	lateDropped  = "dropped"
)

// mostLate is how many answers are kept, or waited for, after their cycles.
const mostLate = 256

// errAway is ask.ErrLate where the planner has not answered recently.
var errAway = errors.New("the planner has not answered recently; it is asked, and not waited for")

// inquiry is how a preemptor's cycle waits for answers.
type inquiry struct {
	breaker  *ask.Breaker
	about    string // what an answer has to be about to be of use
	patience time.Duration
	away     bool          // the planner has not answered recently
	kept     bool          // the last question is kept, and the attempt's span goes on
	asked    memory.Moment // when the last question was asked
	before   bool          // it was asked in a cycle before
	again    bool          // after another one of those, whose answer failed verification
}

// waitFor begins a cycle's waiting: as long as its filters took, and the least that a cycle waits, which is what another cycle would cost;
// longer while another cycle of its namespace comes too late for the answer. It does not wait while the planner is away.
func (p *preemptor) waitFor(breaker *ask.Breaker, about string, filters, most time.Duration) {
	p.inquiry = inquiry{breaker: breaker, about: p.engine.planner.Late.Now() + "/" + about, away: breaker.Away()}
	if p.away {
		return
	}
	p.patience = filters + p.engine.planner.Least
	if breaker.Takes() < ask.CrowdedWait && p.engine.planner.Late.Crowded(p.pods[0].Namespace, p.engine.clock.Now()) {
		p.patience = max(p.patience, ask.CrowdedWait)
	}
	p.patience = min(p.patience, most)
}

// answer returns the planner's plan or refusal; the result says why there is neither. asked and begin as of awaitReply.
func (p *preemptor) answer(ctx context.Context, asked *ask.Asked, begin func() (ask.Exchange, error)) (*wire.PlanReply, *preemptResult) {
	reply, err := p.awaitReply(ctx, asked, begin)
	if err != nil {
		return nil, p.unreachable(err)
	}
	return reply, p.unplanned(reply)
}

// awaitReply returns the answer to the question that is under way, else to one that an earlier cycle has asked, else to a new one, and
// notes when that was asked. An answer that is late is kept for the next cycle; the error is ask.ErrLate then, or errAway.
func (p *preemptor) awaitReply(ctx context.Context, asked *ask.Asked, begin func() (ask.Exchange, error)) (*wire.PlanReply, error) {
	kept, outdated := p.engine.planner.Late.Take(p.uid, p.about)
	if outdated {
		latePlans.WithLabelValues(lateOutdated).Inc()
	}
	if asked == nil {
		asked = kept
	}
	if asked == nil && !p.away && p.wouldBeDropped(p.breaker, p.pods[0], p.patience) {
		p.dropped()
		return nil, ask.ErrLate
	}
	if asked == nil {
		asked = ask.NewAsked(uint64(p.engine.memory.Retries.Now()))
		asked.Again, asked.Span = p.before, p.span
		exchange, err := begin()
		if err != nil {
			return nil, err
		}
		goroutines.GoRecovered(context.WithoutCancel(ctx), "plan", func(ctx context.Context) {
			asked.Ask(func() (*wire.PlanReply, error) { return exchange(ctx) })
		})
	}
	start := time.Now()
	p.before, p.again, p.asked = asked == kept, asked.Again, memory.Moment(asked.At)
	reply, err := asked.Await(ctx, p.patience)
	p.patience = max(0, p.patience-time.Since(start))
	switch {
	case errors.Is(err, ask.ErrLate):
		p.keep(asked)
		if p.away {
			err = errAway
		}
	case p.before && err == nil:
		latePlans.WithLabelValues(lateUsed).Inc()
	}
	return reply, err
}

// outdated reports whether the answer is one of which it is no wonder that it fails verification: others have been nominated since a cycle
// before asked, which says nothing of the nodes. Where that is so again and again, the nodes are why.
func (p *preemptor) outdated() bool { return p.before && !p.again }

// keep keeps a question for the preemptor's next cycle.
func (p *preemptor) keep(asked *ask.Asked) {
	pod := p.pods[0]
	late := ask.Kept{Asked: asked, Namespace: pod.Namespace, Priority: corev1helpers.PodPriority(pod), Of: p.about, Dropped: p.dropped}
	if p.kept = p.engine.planner.Late.Keep(p.uid, late); !p.kept {
		p.dropped()
		return
	}
	goroutines.GoRecovered(p.engine.life, "late", func(ctx context.Context) { p.follow(ctx, asked) })
}

// wouldBeDropped reports whether an answer would come too late for a cycle that waits so long, and there is no room to keep it for the next.
func (pl *MakeWay) wouldBeDropped(breaker *ask.Breaker, pod *v1.Pod, patience time.Duration) bool {
	return breaker.Takes() > patience && !pl.engine.planner.Late.Room(pod.Namespace, corev1helpers.PodPriority(pod))
}

// dropped has the preemptor tried again later, since too many answers are kept already.
func (p *preemptor) dropped() {
	latePlans.WithLabelValues(lateDropped).Inc()
	p.engine.planner.Late.Unused(p.pods[0].Namespace, p.engine.clock.Now())
	p.engine.memory.Retries.PlanUnavailable(p.one(), time.Time{})
}

// follow has the preemptor tried again when the answer comes, and lets go of the answer when it is no longer of use. It does so again and
// again until the answer is taken: see activationPause.
func (p *preemptor) follow(ctx context.Context, asked *ask.Asked) {
	select {
	case <-asked.Answered():
	case <-ctx.Done():
		return
	}
	if _, err := asked.Await(ctx, 0); err != nil {
		if p.engine.planner.Late.End(p.uid, asked) {
			latePlans.WithLabelValues(lateLost).Inc()
			p.engine.memory.Retries.PlanUnavailable(p.one(), time.Time{})
		}
		return
	}
	if !p.engine.planner.Late.Tell(p.uid, asked) {
		return
	}
	for waited := activationPause; waited <= p.engine.planner.Late.Lasts; waited += activationPause {
		pod := p.engine.pending(p.one())
		if pod == nil || !p.engine.placements.Pending(pod.UID) {
			p.engine.planner.Late.Forget(p.uid) // it is gone, or has found room
			return
		}
		p.engine.activate(ctx, pod)
		goroutines.Sleep(ctx, activationPause)
		if p.engine.planner.Late.Of(p.uid) != asked {
			return
		}
		if waited >= ask.UsedWithin {
			p.engine.planner.Late.Unused(p.pods[0].Namespace, p.engine.clock.Now())
		}
	}
	if p.engine.planner.Late.End(p.uid, asked) {
		latePlans.WithLabelValues(lateExpired).Inc()
	}
}

// notYet ends a cycle whose answer has not come in time. The pod's condition stays as it is: the next cycle says what has become of it.
func notYet(pod *v1.Pod) *preemptResult {
	const begins = "makeway: "
	message := "the planner's answer is awaited"
	if _, is := podutil.GetPodCondition(&pod.Status, v1.PodScheduled); is != nil && is.Status == v1.ConditionFalse {
		if _, said, found := strings.Cut(is.Message, begins); found {
			message = said
		}
	}
	return &preemptResult{kind: endLate, message: message}
}

// planOf names what a pod's plan has to be of to be of use to a later cycle.
func planOf(pod *v1.Pod, mode string) string {
	return strconv.FormatInt(pod.Generation, 10) + "/" + mode
}

// groupPlanOf is planOf for a pod group: a plan names members by their classes.
func groupPlanOf(classes []*ask.Class, mode string) string {
	sum := fnv.New128a()
	for _, class := range classes {
		for _, pod := range class.Pods {
			_, _ = sum.Write([]byte(pod.UID + "/")) // never fails
		}
		_, _ = sum.Write([]byte("//"))
	}
	return string(sum.Sum(nil)) + mode
}

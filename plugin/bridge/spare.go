package bridge

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/rules"
	"makeway.dev/makeway/plugin/wire"
)

// Reasons for which the fallback spares a pod, besides those of package rules.
const (
	reasonQueueGuaranteed = "queue-guaranteed"
	reasonNothingKnown    = "nothing-known"
)

// victimRules are what the policy says of victims, ready to be asked.
type victimRules struct {
	protection  rules.Protection
	hardBudgets rules.Namespaces
	hold        bool // nothing is evicted without a plan
}

// victimRulesOf reads those of a control state: nil where it comes from a planner that does not tell them, and there is
// a policy or queues.
func victimRulesOf(state *wire.ControlState) *victimRules {
	told := state.Rules
	if told == nil {
		if state.PolicyRevision != "" || state.QueuesRevision != "" {
			return nil
		}
		told = &wire.Rules{}
	}
	return &victimRules{
		protection: rules.Protection{
			Namespaces:      rules.NamespacesOf(told.ProtectedNamespaces),
			MinimumPriority: told.MinimumPriority,
			NeverEvict:      rules.NamespacesOf(told.NeverEvictNamespaces),
		},
		hardBudgets: rules.NamespacesOf(told.HardBudgetNamespaces),
		hold:        told.WhenUnplanned == wire.WhenUnplannedHold,
	}
}

// guardKey is where a cycle's guard is in its context.
type guardKey struct{}

// guard says which pods the fallback may evict for one preemptor in one cycle. All but `selected` is only read.
type guard struct {
	hold      string // why nothing may go; empty: the rules say it pod by pod
	rules     *victimRules
	classes   schedulinglisters.PriorityClassLister
	budgets   rules.Budgets
	guarantee *guarantees // nil: there are no queues, or none that matters
	priority  int32       // of the preemptor
	now       time.Time
	avoided   map[string]bool // nodes where preemption for it has just failed
	selected  sync.Map        // victims ([]*v1.Pod) by node
}

// guardFor puts together what is known of the rules for a preemptor that evicts `own`, which count as staying, though a
// fallback has just chosen them. O(budgets + orders in flight + queues with a guarantee).
func (e *engine) guardFor(preemptor *v1.Pod, budgets policylisters.PodDisruptionBudgetLister, own map[types.UID]bool) *guard {
	g := &guard{classes: e.classes, priority: corev1helpers.PodPriority(preemptor), now: e.clock.Now()}
	if g.rules, g.hold = e.victimRules(); g.hold != "" {
		return g
	}
	if len(g.rules.hardBudgets) > 0 {
		all, err := budgets.List(labels.Everything())
		if err != nil {
			g.hold = fmt.Sprintf("PodDisruptionBudgets are not known: %v", err)
			return g
		}
		g.budgets = rules.BudgetsOf(all, g.rules.hardBudgets)
	}
	leaving := slices.DeleteFunc(e.chosen.leaving(g.now), func(uid types.UID) bool { return own[uid] })
	for _, order := range e.inflight.live() {
		for _, victim := range order.Victims {
			leaving = append(leaving, types.UID(victim))
		}
	}
	var known bool
	g.avoided, _ = e.avoid.nodes(preemptor.UID)
	if g.guarantee, known = e.gate.guarantees(preemptor, leaving); !known {
		g.hold = "the guarantees of queues are not known"
	}
	return g
}

// victimRules are the rules in force, or why none are known.
func (e *engine) victimRules() (*victimRules, string) {
	if e.args.WhenUnplanned == wire.WhenUnplannedHold {
		return nil, "whenUnplanned of MakeWayArgs is hold"
	}
	current := e.control.current.Load()
	switch {
	case current == nil && e.control.noPolicy.Load():
		return victimRulesOf(&wire.ControlState{}), ""
	case current == nil:
		at := e.args.PolicyConfigMap
		return nil, fmt.Sprintf("no control state is known, and ConfigMap %s/%s exists or was not read", at.Namespace, at.Name)
	case current.rules == nil:
		return nil, "the control state does not say what the policy protects; its planner is of an older version"
	case current.rules.hold:
		return nil, "whenUnplanned of the policy is hold"
	}
	return current.rules, ""
}

// keeps is the reason for which a pod is no victim, whatever goes beside it; empty where it may go. A pod that is
// leaving already may be counted on: it is not deleted again. O(budgets of its namespace).
func (g *guard) keeps(victim *v1.Pod) string {
	if victim.DeletionTimestamp != nil {
		return ""
	}
	if g.hold != "" {
		return reasonNothingKnown
	}
	if rules.SystemCritical(victim, g.priority) {
		return rules.ReasonSystemCritical
	}
	if reason := g.rules.protection.Protects(victim); reason != "" {
		return reason
	}
	if tolerates, err := rules.CanToleratePreemption(victim, &v1.Pod{Spec: v1.PodSpec{Priority: &g.priority}}, g.classes, g.now); tolerates || err != nil {
		return rules.ReasonPreemptionToleration
	}
	// The API server does not count what a scheduler deletes, so no delete of the fallback is known to keep a budget.
	if g.budgets.Cover(victim) {
		return rules.ReasonHardBudget
	}
	return ""
}

// sort gives the pods of a node that may all go together, and the reasons for which others of lower priority stay.
// O(pods · (log pods + depth of their queues)).
func (g *guard) sort(node fwk.NodeInfo, moreImportant func(a, b *v1.Pod) bool) (free map[types.UID]struct{}, kept string) {
	pods := make([]*v1.Pod, 0, len(node.GetPods()))
	for _, info := range node.GetPods() {
		if pod := info.GetPod(); corev1helpers.PodPriority(pod) < g.priority {
			pods = append(pods, pod)
		}
	}
	stay := g.split(pods, moreImportant)
	free = make(map[types.UID]struct{}, len(pods)-len(stay))
	for _, pod := range pods {
		if stay[pod] == "" {
			free[pod.UID] = struct{}{}
		}
	}
	names := make([]string, 0, len(stay))
	for _, reason := range stay {
		fallbackSpared.WithLabelValues(reason).Inc()
		names = append(names, reason)
	}
	slices.Sort(names)
	return free, strings.Join(slices.Compact(names), ", ")
}

// split gives those of some pods that stay, each with its reason; the others may all go together. Guarantees let the
// least important go first. O(pods · (log pods + depth of their queues)).
func (g *guard) split(pods []*v1.Pod, moreImportant func(a, b *v1.Pod) bool) (stay map[*v1.Pod]string) {
	stay = map[*v1.Pod]string{}
	var asked []*v1.Pod
	for _, pod := range pods {
		if reason := g.keeps(pod); reason != "" {
			stay[pod] = reason
		} else if g.guarantee != nil && pod.DeletionTimestamp == nil {
			asked = append(asked, pod)
		}
	}
	slices.SortFunc(asked, func(a, b *v1.Pod) int {
		switch {
		case moreImportant(b, a):
			return -1
		case moreImportant(a, b):
			return 1
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	taken := map[quotaAt]int64{}
	for _, pod := range asked {
		if !g.guarantee.take(pod, taken) {
			stay[pod] = reasonQueueGuaranteed
		}
	}
	return stay
}

// victimsOn are the victims that were selected on a node.
func (g *guard) victimsOn(node string) []*v1.Pod {
	found, _ := g.selected.Load(node)
	victims, _ := found.([]*v1.Pod)
	return victims
}

// guarantees are what queues outside a preemptor's own may lose and stay at or above their guarantees. They are
// only read.
type guarantees struct {
	tree  *queueTree
	own   *queue            // the preemptor's
	spare map[quotaAt]int64 // not below 0; a queue and resource without a guarantee are not in it
}

// quotaAt is a resource of a queue: the queue's number and the resource's index.
type quotaAt struct{ queue, index int }

// guarantees returns them for a preemptor, nil where no guarantee can stand in its way; known reports whether it is known
// which guarantees there are. Pods count that are placed and not on their way out; `leaving` are some that are, though that
// may not show. O(queues × resources + leaving).
func (g *queueGate) guarantees(preemptor *v1.Pod, leaving []types.UID) (found *guarantees, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.usage == nil {
		return nil, g.knows == noQueues
	}
	tree := g.usage.tree
	if !tree.guarantees {
		return nil, true
	}
	found = &guarantees{tree: tree, own: tree.place(askedQueue(preemptor), preemptor.Namespace), spare: map[quotaAt]int64{}}
	for _, q := range tree.queues {
		for i, least := range q.guaranteed {
			if least > 0 && !q.holds(found.own) {
				found.spare[quotaAt{q.number, i}] = g.usage.staying[q.number][i] - least
			}
		}
	}
	slices.Sort(leaving)
	for _, uid := range slices.Compact(leaving) {
		m := g.usage.members[uid]
		if m == nil || !m.stays() {
			continue
		}
		for _, q := range m.leaf.line {
			for _, n := range m.needs {
				if spare, guarded := found.spare[quotaAt{q.number, n.index}]; guarded {
					found.spare[quotaAt{q.number, n.index}] = spare - n.value
				}
			}
		}
	}
	return found, true
}

// take reports whether a pod may go beside what was taken before, and notes it where it may.
// O(depth × resources).
func (g *guarantees) take(pod *v1.Pod, taken map[quotaAt]int64) bool {
	wanted := demandOf(pod)
	wanted.place(g.tree)
	for _, q := range wanted.leaf.line {
		for _, n := range wanted.needs {
			at := quotaAt{q.number, n.index}
			if spare, guarded := g.spare[at]; guarded && n.value > max(spare, 0)-taken[at] {
				return false
			}
		}
	}
	for _, q := range wanted.leaf.line {
		for _, n := range wanted.needs {
			taken[quotaAt{q.number, n.index}] += n.value
		}
	}
	return true
}

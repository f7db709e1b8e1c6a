package preempt

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
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/queuegate"
	"makeway.dev/makeway/plugin/rules"
	"makeway.dev/makeway/plugin/wire"
)

// Reasons for which a pod is exempt in the fallback, besides those of package rules.
const (
	reasonQueueGuaranteed = "queue-guaranteed"
	reasonNothingKnown    = "nothing-known"
	reasonPodGroup        = "pod-group"
)

// guarantees are what the fallback may not take other queues below; known reports whether it is known what that is.
type guarantees interface {
	GuaranteeMargins(preemptor *v1.Pod, leaving []types.UID) (margins *queuegate.GuaranteeMargins, known bool)
}

// victimRules are what the policy says of victims, ready to be asked.
type victimRules struct {
	protection  rules.Protection
	hardBudgets rules.Namespaces
	maxVictims  int64 // of one preemption; 0: any number
	hold        bool  // nothing is evicted without a plan
	holdGroups  bool  // nor for pods of a gang
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
	var maxVictims int64
	if limits := state.Limits; limits != nil {
		maxVictims = ptr.Deref(limits.VictimsPerOrder, 0)
	}
	return &victimRules{
		protection: rules.Protection{
			Namespaces:      rules.NamespacesOf(told.ProtectedNamespaces),
			MinimumPriority: told.MinimumPriority,
			NeverEvict:      rules.NamespacesOf(told.NeverEvictNamespaces),
		},
		hardBudgets: rules.NamespacesOf(told.HardBudgetNamespaces),
		maxVictims:  maxVictims,
		hold:        told.WhenUnplanned == wire.WhenUnplannedHold,
		holdGroups:  told.GroupPreemptors == wire.GroupPreemptorsHold,
	}
}

// victimGuardKey is where a cycle's guard is in its context.
type victimGuardKey struct{}

// victimGuard says which pods the fallback may evict for one preemptor in one cycle. All but `selected` is only read.
type victimGuard struct {
	hold           string // why nothing may go; empty: the rules say it pod by pod
	rules          *victimRules
	classes        schedulinglisters.PriorityClassLister
	tolerations    rules.TolerationRecord // of classes that are gone
	budgets        rules.Budgets
	margins        *queuegate.GuaranteeMargins // nil: there are no queues, or none that matters
	priority       int32                       // of the preemptor
	now            time.Time
	backedOffNodes map[string]bool // nodes where preemption for it has just failed
	selected       sync.Map        // victims ([]*v1.Pod) by node
}

// victimGuardFor puts together what is known of the rules for a preemptor that evicts `own`, which count as staying, though a
// fallback has just chosen them. O(budgets + orders in flight + queues with a guarantee).
func (e *engine) victimGuardFor(preemptor *v1.Pod, budgets policylisters.PodDisruptionBudgetLister, own map[types.UID]bool) *victimGuard {
	g := &victimGuard{classes: e.classes, priority: corev1helpers.PodPriority(preemptor), now: e.clock.Now()}
	if e.classesSynced() { // before that no class is known to be gone
		g.tolerations = e.control.tolerationRecord()
	}
	if g.rules, g.hold = e.victimRules(); g.hold != "" {
		return g
	}
	if brake := e.control.brake.Load(); brake.holds(preemptor.Namespace) {
		g.hold = "the brake is set (" + brake.scope() + ")"
		return g
	}
	if why := e.evictorsRefuse(preemptor.Namespace); why != "" {
		g.hold = why.String()
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
	leaving := slices.DeleteFunc(e.recentVictims.leaving(g.now), func(uid types.UID) bool { return own[uid] })
	for _, order := range e.inflight.Live() {
		for _, victim := range order.Victims {
			leaving = append(leaving, types.UID(victim))
		}
	}
	var known bool
	g.backedOffNodes, _ = e.nodeBackoff.nodes(preemptor.UID)
	if g.margins, known = e.gate.GuaranteeMargins(preemptor, leaving); !known {
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
	if name := e.outdated(current); name != "" {
		return nil, fmt.Sprintf("ConfigMap %s has changed, and no planner has told what it says", name)
	}
	return current.rules, ""
}

// exempts is the reason for which a pod is no victim, whatever goes beside it; empty where it may go. A pod that is
// leaving already may be counted on: it is not deleted again. O(budgets of its namespace).
func (g *victimGuard) exempts(victim *v1.Pod) string {
	if victim.DeletionTimestamp != nil {
		return ""
	}
	if g.hold != "" {
		return reasonNothingKnown
	}
	// Only a planner knows what has to go with it.
	if minor.BreaksGroup(victim) {
		return reasonPodGroup
	}
	if rules.SystemCritical(victim, g.priority) {
		return rules.ReasonSystemCritical
	}
	if reason := g.rules.protection.Protects(victim); reason != "" {
		return reason
	}
	if tolerates, err := rules.CanToleratePreemption(victim, &v1.Pod{Spec: v1.PodSpec{Priority: &g.priority}}, g.classes, g.tolerations, g.now); tolerates || err != nil {
		return rules.ReasonPreemptionToleration
	}
	// The API server does not count what a scheduler deletes, so no delete of the fallback is known to keep a budget.
	if g.budgets.Cover(victim) {
		return rules.ReasonHardBudget
	}
	return ""
}

// partition returns the pods of a node that may all go together, and the reasons for which others of lower priority stay.
// O(pods · (log pods + depth of their queues)).
func (g *victimGuard) partition(node fwk.NodeInfo, moreImportant func(a, b *v1.Pod) bool) (free map[types.UID]struct{}, kept string) {
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
		fallbackExempt.WithLabelValues(reason).Inc()
		names = append(names, reason)
	}
	slices.Sort(names)
	return free, strings.Join(slices.Compact(names), ", ")
}

// split returns those of some pods that stay, each with its reason; the others may all go together. Guarantees let the
// least important go first. O(pods · (log pods + depth of their queues)).
func (g *victimGuard) split(pods []*v1.Pod, moreImportant func(a, b *v1.Pod) bool) (stay map[*v1.Pod]string) {
	stay = map[*v1.Pod]string{}
	var asked []*v1.Pod
	for _, pod := range pods {
		if reason := g.exempts(pod); reason != "" {
			stay[pod] = reason
		} else if g.margins != nil && pod.DeletionTimestamp == nil {
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
	if g.margins == nil {
		return stay
	}
	together := g.margins.Victims()
	for _, pod := range asked {
		if !together.Take(pod) {
			stay[pod] = reasonQueueGuaranteed
		}
	}
	return stay
}

// tooMany is why not all of some victims may go in one preemption; empty where they may. Those that are leaving already
// do not count.
func (g *victimGuard) tooMany(victims []*v1.Pod) string {
	if g.rules == nil || g.rules.maxVictims == 0 {
		return ""
	}
	staying := 0
	for _, victim := range victims {
		if victim.DeletionTimestamp == nil {
			staying++
		}
	}
	if int64(staying) <= g.rules.maxVictims {
		return ""
	}
	return fmt.Sprintf("%d pods would have to go, more than limits.victimsPerOrder of the policy (%d)", staying, g.rules.maxVictims)
}

// victimsOn are the victims that were selected on a node.
func (g *victimGuard) victimsOn(node string) []*v1.Pod {
	found, _ := g.selected.Load(node)
	victims, _ := found.([]*v1.Pod)
	return victims
}

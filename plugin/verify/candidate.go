package verify

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"makeway.dev/makeway/plugin/wire"
)

// NeedsNothing reports whether the preemptor fits while all pods stay.
func (c *Candidate) NeedsNothing() bool { return len(c.Victims)+len(c.Awaited) == 0 }

// TerminatingAlone are the pods that make the room, where all of them are terminating; none otherwise.
func (c *Candidate) TerminatingAlone() (pods []*v1.Pod) {
	if len(c.Victims) > 0 {
		return nil
	}
	for _, one := range c.Awaited {
		if one.OrderID != "" {
			return nil
		}
		pods = append(pods, one.Pod)
	}
	return pods
}

// The planner's rules by which a pod may be removed: a lower priority, the strategies that make room for a pod that its
// DaemonSet has bound to one node, and what the preemptor's queue takes back of its guarantee.
const (
	RuleLowerPriority      = "lower-priority"
	ruleLowerGroupPriority = "lower-group-priority"
	RuleDaemonSetSingle    = "daemonset-single"
	RuleDaemonSetMultiple  = "daemonset-multiple"
	RuleReclaim            = "reclaim"
)

// Victim is a pod to evict.
type Victim struct {
	Pod       *v1.Pod
	Violating bool   // its removal violates a PodDisruptionBudget
	Unit      string // the group with which it is evicted whole or not at all
	LostWork  int64  // what its eviction loses, in the planner's measure
}

// Awaited is a pod that leaves anyway: another order removes it, or it is terminating and has no orderID.
type Awaited struct {
	Pod     *v1.Pod
	OrderID string
}

// OnTheWire names the pod as messages do.
func (a Awaited) OnTheWire() wire.Awaited {
	if a.OrderID != "" {
		return wire.Awaited{UID: string(a.Pod.UID), OrderID: a.OrderID}
	}
	until := wire.At(overdueAt(a.Pod))
	return wire.Awaited{UID: string(a.Pod.UID), Namespace: a.Pod.Namespace, Name: a.Pod.Name, Until: &until}
}

// Candidate is a candidate, or a plan for a group, that passed the scheduler's own filters. Its victims are minimal: none of
// them could stay. They come in the order in which they were reprieved.
type Candidate struct {
	Node    string           // of a pod; empty for a group
	Places  []wire.Placement // where the preemptor's pods were placed
	Victims []Victim
	Awaited []Awaited
	// removable are the pods of the node that policy allows to be removed, by UID.
	removable map[types.UID]Victim
	// AsPlanned: the victims are exactly those of the plan.
	AsPlanned bool
}

// forExtender is the candidate as an extender sees it: everything that goes.
func (c *Candidate) forExtender() *extenderv1.Victims {
	victims := &extenderv1.Victims{}
	for _, v := range c.Victims {
		victims.Pods = append(victims.Pods, v.Pod)
		if v.Violating {
			victims.NumPDBViolations++
		}
	}
	for _, a := range c.Awaited {
		victims.Pods = append(victims.Pods, a.Pod)
	}
	return victims
}

// withVictims is the candidate with other victims. ok is false where one of them may not be removed.
func (c *Candidate) withVictims(pods []*v1.Pod) (changed *Candidate, ok bool) {
	awaited := make(map[types.UID]bool, len(c.Awaited))
	for _, a := range c.Awaited {
		awaited[a.Pod.UID] = true
	}
	next := *c
	next.Victims = nil
	for _, pod := range pods {
		if awaited[pod.UID] {
			continue
		}
		allowed, ok := c.removable[pod.UID]
		if !ok {
			return nil, false
		}
		next.Victims = append(next.Victims, allowed)
	}
	return &next, next.keepsUnitsWhole()
}

// keepsUnitsWhole reports whether of each unit all pods go, or none.
func (c *Candidate) keepsUnitsWhole() bool {
	whole := map[string]int{}
	for _, v := range c.removable {
		whole[v.Unit]++
	}
	going := map[string]int{}
	for _, v := range c.Victims {
		going[v.Unit]++
	}
	for unit, n := range going {
		if unit != "" && n < whole[unit] {
			return false
		}
	}
	return true
}

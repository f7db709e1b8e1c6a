package verify

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// Extenders are those that have a say in a pod's preemption, by fwk.Extender.SupportsPreemption, or in where it goes, by fwk.Extender.IsFilter.
func Extenders(handle fwk.Handle, pod *v1.Pod, say func(fwk.Extender) bool) []fwk.Extender {
	return slices.DeleteFunc(slices.Clone(handle.Extenders()), func(e fwk.Extender) bool { return !say(e) || !e.IsInterested(pod) })
}

// maxExtenderReason bounds, in bytes, what is taken of an extender's reason.
const maxExtenderReason = 128

// AskFilters asks the filters of extenders about candidates, one after another as a scheduling cycle does, each for the nodes that
// those before left, and returns why nodes are rejected. The nodes are as they are now, with the pods that would go. So
// a node that an extender rejects for now counts as rejected, unless what would go may be why: its verdict is left to the
// cycle after it. Errors of an extender that is not ignorable are returned. Each call is bounded by the extender's own time-out.
func AskFilters(extenders []fwk.Extender, pod *v1.Pod, candidates []*Candidate, nodes fwk.NodeInfoLister) (rejected map[string]Failure, err error) {
	rejected = map[string]Failure{}
	left := slices.Clone(candidates)
	for _, extender := range extenders {
		asked := make([]fwk.NodeInfo, 0, len(left))
		for _, c := range left {
			if node, err := nodes.Get(c.Node); err == nil {
				asked = append(asked, node)
			}
		}
		if len(asked) == 0 {
			break
		}
		passed, failed, unresolvable, err := extender.Filter(pod, asked)
		if err != nil {
			if extender.IsIgnorable() {
				continue
			}
			return nil, fmt.Errorf("extender %s: %w", extender.Name(), err)
		}
		passes := make(map[string]bool, len(passed))
		for _, node := range passed {
			passes[node.Node().Name] = true
		}
		left = slices.DeleteFunc(left, func(c *Candidate) bool {
			why, never := unresolvable[c.Node]
			if !never {
				why = failed[c.Node]
			}
			if !never && (passes[c.Node] || mayChange(extender, c)) {
				return false
			}
			rejected[c.Node] = Failure{Cause: CauseExtender, Plugin: extender.Name() + ": " + wire.Beginning(why, maxExtenderReason)}
			return true
		})
	}
	return rejected, nil
}

// mayChange reports whether an extender's verdict on a node may be another once a candidate's victims have left: it is asked about them
// next, or it manages resources of which one of them has some.
func mayChange(extender fwk.Extender, c *Candidate) bool {
	if extender.SupportsPreemption() {
		return true
	}
	if extender.IsInterested(&v1.Pod{}) {
		return false // it manages no resources, and is asked about every pod
	}
	return slices.ContainsFunc(c.Victims, func(v Victim) bool { return extender.IsInterested(v.Pod) }) ||
		slices.ContainsFunc(c.Awaited, func(one Awaited) bool { return extender.IsInterested(one.Pod) })
}

// AskExtenders lets each extender take candidates away or change their victims, once, with all of them.
// A set that leaves what policy allows to be removed is dropped with its candidate. Errors of an extender that is
// not ignorable are returned. Each call is bounded by the extender's own time-out.
func AskExtenders(extenders []fwk.Extender, pod *v1.Pod, candidates []*Candidate, nodes fwk.NodeInfoLister) ([]*Candidate, error) {
	byNode := make(map[string]*Candidate, len(candidates))
	asked := make(map[string]*extenderv1.Victims, len(candidates))
	for _, c := range candidates {
		byNode[c.Node] = c
		asked[c.Node] = c.forExtender()
	}
	for _, extender := range extenders {
		if len(asked) == 0 {
			return nil, nil
		}
		answer, err := extender.ProcessPreemption(pod, asked, nodes)
		if err != nil {
			if extender.IsIgnorable() {
				continue
			}
			return nil, fmt.Errorf("extender %s: %w", extender.Name(), err)
		}
		asked = answer
	}

	var kept []*Candidate
	for _, c := range candidates {
		victims := asked[c.Node]
		if victims == nil || len(victims.Pods) == 0 {
			continue
		}
		if changed, ok := byNode[c.Node].withVictims(victims.Pods); ok {
			kept = append(kept, changed)
		}
	}
	return kept, nil
}

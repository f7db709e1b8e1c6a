package preempt

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// interestedExtenders are the extenders that have a say in this pod's preemption.
func interestedExtenders(handle fwk.Handle, pod *v1.Pod) []fwk.Extender {
	return slices.DeleteFunc(slices.Clone(handle.Extenders()), func(e fwk.Extender) bool {
		return !e.SupportsPreemption() || !e.IsInterested(pod)
	})
}

// filteringExtenders are the extenders whose filter has a say in where this pod goes.
func filteringExtenders(handle fwk.Handle, pod *v1.Pod) []fwk.Extender {
	return slices.DeleteFunc(slices.Clone(handle.Extenders()), func(e fwk.Extender) bool {
		return !e.IsFilter() || !e.IsInterested(pod)
	})
}

// asksExtenders reports whether extenders are asked about a pod's candidates: each once, with all of them.
func (pl *MakeWay) asksExtenders(pod *v1.Pod) bool {
	return len(interestedExtenders(pl.handle, pod))+len(filteringExtenders(pl.handle, pod)) > 0
}

// maxExtenderReason bounds, in bytes, what is taken of an extender's reason.
const maxExtenderReason = 128

// askFilters asks the filters of extenders about candidates, one after another as a scheduling cycle does, each for the nodes that
// those before left, and returns why nodes are rejected. The nodes are as they are now, with the pods that would go. So
// a node that an extender rejects for now counts as rejected, unless what would go may be why: its verdict is left to the
// cycle after it. Errors of an extender that is not ignorable are returned. Each call is bounded by the extender's own time-out.
func askFilters(extenders []fwk.Extender, pod *v1.Pod, candidates []*verifiedCandidate, nodes fwk.NodeInfoLister) (rejected map[string]failure, err error) {
	rejected = map[string]failure{}
	left := slices.Clone(candidates)
	for _, extender := range extenders {
		asked := make([]fwk.NodeInfo, 0, len(left))
		for _, c := range left {
			if node, err := nodes.Get(c.node); err == nil {
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
		left = slices.DeleteFunc(left, func(c *verifiedCandidate) bool {
			why, never := unresolvable[c.node]
			if !never {
				why = failed[c.node]
			}
			if !never && (passes[c.node] || mayChange(extender, c)) {
				return false
			}
			rejected[c.node] = failure{cause: causeExtender, plugin: extender.Name() + ": " + beginning(why, maxExtenderReason)}
			return true
		})
	}
	return rejected, nil
}

// mayChange reports whether an extender's verdict on a node may be another once a candidate's victims have left: it is asked about them
// next, or it manages resources of which one of them has some.
func mayChange(extender fwk.Extender, c *verifiedCandidate) bool {
	if extender.SupportsPreemption() {
		return true
	}
	if extender.IsInterested(&v1.Pod{}) {
		return false // it manages no resources, and is asked about every pod
	}
	return slices.ContainsFunc(c.victims, func(v victim) bool { return extender.IsInterested(v.pod) }) ||
		slices.ContainsFunc(c.awaited, func(one awaitedPod) bool { return extender.IsInterested(one.pod) })
}

// allowedByFilters returns the candidates that the extenders' filters do not reject; the others have failed verification. The result
// says why there is none: then no other plugin acts either, since the scheduler would place the pod on none of them. pay has the
// time that it took counted.
func (a *attempt) allowedByFilters(candidates []*verifiedCandidate, pay func()) (kept []*verifiedCandidate, end *preemptResult) {
	extenders := filteringExtenders(a.handle, a.pod)
	if len(extenders) == 0 {
		return candidates, nil
	}
	rejected, err := askFilters(extenders, a.pod, candidates, a.nodes)
	if err != nil {
		a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
		return nil, &preemptResult{kind: endUnverifiable, message: err.Error()}
	}
	a.remember(rejected)
	kept = slices.DeleteFunc(slices.Clone(candidates), func(c *verifiedCandidate) bool {
		_, gone := rejected[c.node]
		return gone
	})
	if len(kept) > 0 {
		return kept, nil
	}
	result := a.unverifiable
	if a.left().count > 0 {
		pay()
		result = func() preemptResult { return a.unfinished(true) }
	}
	ended := result()
	ended.kind = endUnverifiable
	return nil, &ended
}

// askExtenders lets each extender take candidates away or change their victims, once, with all of them.
// A set that leaves what policy allows to be removed is dropped with its candidate. Errors of an extender that is
// not ignorable are returned. Each call is bounded by the extender's own time-out.
func askExtenders(extenders []fwk.Extender, pod *v1.Pod, candidates []*verifiedCandidate, nodes fwk.NodeInfoLister) ([]*verifiedCandidate, error) {
	byNode := make(map[string]*verifiedCandidate, len(candidates))
	asked := make(map[string]*extenderv1.Victims, len(candidates))
	for _, c := range candidates {
		byNode[c.node] = c
		asked[c.node] = c.forExtender()
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

	var kept []*verifiedCandidate
	for _, c := range candidates {
		victims := asked[c.node]
		if victims == nil || len(victims.Pods) == 0 {
			continue
		}
		if changed, ok := byNode[c.node].withVictims(victims.Pods); ok {
			kept = append(kept, changed)
		}
	}
	return kept, nil
}

// forExtender is the candidate as an extender sees it: everything that goes.
func (c *verifiedCandidate) forExtender() *extenderv1.Victims {
	victims := &extenderv1.Victims{}
	for _, v := range c.victims {
		victims.Pods = append(victims.Pods, v.pod)
		if v.violating {
			victims.NumPDBViolations++
		}
	}
	for _, a := range c.awaited {
		victims.Pods = append(victims.Pods, a.pod)
	}
	return victims
}

// withVictims is the candidate with other victims. ok is false where one of them may not be removed.
func (c *verifiedCandidate) withVictims(pods []*v1.Pod) (changed *verifiedCandidate, ok bool) {
	awaited := make(map[types.UID]bool, len(c.awaited))
	for _, a := range c.awaited {
		awaited[a.pod.UID] = true
	}
	next := *c
	next.victims = nil
	for _, pod := range pods {
		if awaited[pod.UID] {
			continue
		}
		allowed, ok := c.removable[pod.UID]
		if !ok {
			return nil, false
		}
		next.victims = append(next.victims, allowed)
	}
	return &next, next.keepsUnitsWhole()
}

// keepsUnitsWhole reports whether of each unit all pods go, or none.
func (c *verifiedCandidate) keepsUnitsWhole() bool {
	whole := map[string]int{}
	for _, v := range c.removable {
		whole[v.unit]++
	}
	going := map[string]int{}
	for _, v := range c.victims {
		going[v.unit]++
	}
	for unit, n := range going {
		if unit != "" && n < whole[unit] {
			return false
		}
	}
	return true
}

// askExtenders returns the candidates that the extenders allow, best first. Each extender is asked once, with all of them.
func (a *attempt) askExtenders(candidates []*verifiedCandidate) (kept []*verifiedCandidate, end *preemptResult) {
	extenders := interestedExtenders(a.handle, a.pod)
	if len(extenders) == 0 {
		return candidates, nil
	}
	kept, err := askExtenders(extenders, a.pod, candidates, a.nodes)
	switch {
	case err != nil:
		return nil, &preemptResult{kind: endError, message: err.Error()}
	case len(kept) == 0:
		a.engine.retry.planUnavailable(refOf(a.pod), time.Time{})
		return nil, &preemptResult{kind: endUnverifiable, message: fmt.Sprintf("scheduler extenders left none of %d nodes", len(candidates))}
	}
	a.rank(kept)
	return kept, nil
}

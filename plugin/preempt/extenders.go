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

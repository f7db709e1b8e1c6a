package verify

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Extenders are those that have a say in a pod's preemption.
func Extenders(handle fwk.Handle, pod *v1.Pod) []fwk.Extender {
	return slices.DeleteFunc(slices.Clone(handle.Extenders()), func(e fwk.Extender) bool { return !e.SupportsPreemption() || !e.IsInterested(pod) })
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

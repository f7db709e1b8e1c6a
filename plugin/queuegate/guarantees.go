package queuegate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GuaranteeMargins are what queues outside a preemptor's own may lose and stay at or above their guarantees. They are
// only read.
type GuaranteeMargins struct {
	tree    *queueTree
	own     *queue            // the preemptor's
	margins map[quotaAt]int64 // a queue and resource without a guarantee are not in it
}

// quotaAt is a resource of a queue: the queue's number and the resource's index.
type quotaAt struct{ queue, index int }

// GuaranteeMargins returns them for a preemptor, nil where no guarantee can stand in its way; known reports whether it
// is known which guarantees there are. Pods count that are placed and not on their way out; `leaving` are some that are,
// though that may not show. O(queues × resources + leaving).
func (g *Gate) GuaranteeMargins(preemptor *v1.Pod, leaving []types.UID) (found *GuaranteeMargins, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.usage == nil {
		return nil, g.limitsKnown == noQueues
	}
	tree := g.usage.tree
	if !tree.guarantees {
		return nil, true
	}
	found = &GuaranteeMargins{tree: tree, own: tree.place(askedQueue(preemptor), preemptor.Namespace), margins: map[quotaAt]int64{}}
	for _, q := range tree.queues {
		for i, least := range q.guaranteed {
			if least > 0 && !q.holds(found.own) {
				found.margins[quotaAt{q.number, i}] = g.usage.staying[q.number][i] - least
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
				if margin, guarded := found.margins[quotaAt{q.number, n.index}]; guarded {
					found.margins[quotaAt{q.number, n.index}] = margin - n.value
				}
			}
		}
	}
	return found, true
}

// Victims begins a set of pods that may go together; it is empty.
func (m *GuaranteeMargins) Victims() *VictimSet {
	return &VictimSet{margins: m, taken: map[quotaAt]int64{}}
}

// VictimSet are pods that may go together, by the guarantees of their queues. Not safe for concurrent use.
type VictimSet struct {
	margins *GuaranteeMargins
	taken   map[quotaAt]int64
}

// Take reports whether a pod may go beside those of the set, and puts it in where it may. O(depth × resources).
func (s *VictimSet) Take(pod *v1.Pod) bool {
	wanted := demandOf(pod)
	wanted.place(s.margins.tree)
	for _, q := range wanted.leaf.line {
		for _, n := range wanted.needs {
			at := quotaAt{q.number, n.index}
			if margin, guarded := s.margins.margins[at]; guarded && n.value > max(margin, 0)-s.taken[at] {
				return false
			}
		}
	}
	for _, q := range wanted.leaf.line {
		for _, n := range wanted.needs {
			s.taken[quotaAt{q.number, n.index}] += n.value
		}
	}
	return true
}

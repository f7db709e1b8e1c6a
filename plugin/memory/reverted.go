package memory

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Reverted remembers preemptors whose nomination was deleted in memory and may still be in the API, with its node: after an
// order that was never stored, or that no evictor has taken back. The next cycle of the pod tells the scheduler to
// clear it there, by its own way of writing. Bounded by the pods that are pending. Safe for concurrent use.
type Reverted struct {
	mu    sync.Mutex
	nodes map[types.UID]string
}

func newReverted() *Reverted { return &Reverted{nodes: map[types.UID]string{}} }

func (r *Reverted) Note(pod types.UID, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[pod] = node
}

// Take reports whether the nomination that the API shows was reverted, and forgets it then: said once, it is the
// scheduler's.
func (r *Reverted) Take(pod types.UID, nominated string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if node, ok := r.nodes[pod]; !ok || node != nominated {
		return false
	}
	delete(r.nodes, pod)
	return true
}

func (r *Reverted) Forget(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, pod)
}

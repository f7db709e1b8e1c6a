package orders

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// Placements knows where unbound pods are placed: nominated in the API, as the pod informer shows it,
// and assumed, as Reserve and Unreserve say. The planner needs both, since assumed pods are nowhere in
// the API. Safe for concurrent use.
type Placements struct {
	mu        sync.Mutex
	known     map[types.UID]bool // every pod that the informer has, and whether it is bound
	nominated map[types.UID]wire.Placement
	assumed   map[types.UID]wire.Placement
}

func NewPlacements() *Placements {
	return &Placements{known: map[types.UID]bool{}, nominated: map[types.UID]wire.Placement{}, assumed: map[types.UID]wire.Placement{}}
}

// Observe takes in a pod as the informer shows it.
func (p *Placements) Observe(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pod.UID] = pod.Spec.NodeName != ""
	if pod.Spec.NodeName != "" {
		delete(p.nominated, pod.UID)
		delete(p.assumed, pod.UID)
		return
	}
	if pod.Status.NominatedNodeName == "" {
		delete(p.nominated, pod.UID)
		return
	}
	p.nominated[pod.UID] = PlacementOf(pod, pod.Status.NominatedNodeName)
}

// Removed takes in that a pod was deleted.
func (p *Placements) Removed(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, uid)
	delete(p.nominated, uid)
	delete(p.assumed, uid)
}

// Knows reports whether the informer has a pod, by UID: a pod made anew under the same name is another.
func (p *Placements) Knows(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.known[uid]
	return ok
}

// Pending reports whether a pod is on no node, neither bound nor assumed. A victim was on one: its placement
// has been taken back since.
func (p *Placements) Pending(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	bound, known := p.known[uid]
	_, assumed := p.assumed[uid]
	return known && !bound && !assumed
}

// Assume notes that the scheduler has placed a pod that the API does not show as bound.
func (p *Placements) Assume(pod *v1.Pod, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assumed[pod.UID] = PlacementOf(pod, node)
}

// Unassume notes that the scheduler has taken a placement back.
func (p *Placements) Unassume(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.assumed, uid)
}

// Lists are the nominated and the assumed pods, in no order. `also` are nominations that the API may not show yet, which go before those
// that it shows. O(all lists).
func (p *Placements) Lists(also []wire.Placement) (nominated, assumed []wire.Placement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	merged := make(map[types.UID]wire.Placement, len(p.nominated)+len(also))
	for uid, place := range p.nominated {
		if _, placed := p.assumed[uid]; !placed {
			merged[uid] = place
		}
	}
	for _, place := range also {
		merged[types.UID(place.UID)] = place
	}
	return slices.Collect(maps.Values(merged)), slices.Collect(maps.Values(p.assumed))
}

func PlacementOf(pod *v1.Pod, node string) wire.Placement {
	return wire.Placement{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: node}
}

func RefOf(pod *v1.Pod) wire.PodRef {
	return wire.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

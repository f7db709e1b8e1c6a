package orders

import (
	"slices"
	"strings"
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
	Nominated placementList
	assumed   placementList
}

func NewPlacements() *Placements {
	return &Placements{known: map[types.UID]bool{}}
}

// Observe takes in a pod as the informer shows it.
func (p *Placements) Observe(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pod.UID] = pod.Spec.NodeName != ""
	if pod.Spec.NodeName != "" {
		p.Nominated.remove(pod.UID)
		p.assumed.remove(pod.UID)
		return
	}
	if pod.Status.NominatedNodeName == "" {
		p.Nominated.remove(pod.UID)
		return
	}
	p.Nominated.put(PlacementOf(pod, pod.Status.NominatedNodeName))
}

// Removed takes in that a pod was deleted.
func (p *Placements) Removed(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, uid)
	p.Nominated.remove(uid)
	p.assumed.remove(uid)
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
	_, assumed := p.assumed.Find(uid)
	return known && !bound && !assumed
}

// Assume notes that the scheduler has placed a pod that the API does not show as bound.
func (p *Placements) Assume(pod *v1.Pod, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assumed.put(PlacementOf(pod, node))
}

// Unassume notes that the scheduler has taken a placement back.
func (p *Placements) Unassume(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assumed.remove(uid)
}

// Lists are the nominated and the assumed pods, ordered by UID. `also` are nominations that the API may
// not show yet, which go before those that it shows. O(both lists), and each of `also` moves what follows it.
func (p *Placements) Lists(also []wire.Placement) (nominated, assumed []wire.Placement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	merged := make(placementList, 0, len(p.Nominated)+len(also))
	for _, place := range p.Nominated {
		if _, placed := p.assumed.Find(types.UID(place.UID)); !placed {
			merged = append(merged, place)
		}
	}
	for _, place := range also {
		merged.put(place)
	}
	return merged, slices.Clone(p.assumed)
}

// placementList is placements ordered by UID, one a pod. A change moves what follows, which for some hundreds of pods costs
// less than putting a map in order for each request.
type placementList []wire.Placement

// Find returns where a pod is, or would be.
func (p placementList) Find(uid types.UID) (at int, found bool) {
	return slices.BinarySearchFunc(p, string(uid), func(place wire.Placement, uid string) int { return strings.Compare(place.UID, uid) })
}

func (p *placementList) put(place wire.Placement) {
	at, found := p.Find(types.UID(place.UID))
	if found {
		(*p)[at] = place
		return
	}
	*p = slices.Insert(*p, at, place)
}

func (p *placementList) remove(uid types.UID) {
	if at, found := p.Find(uid); found {
		*p = slices.Delete(*p, at, at+1)
	}
}

func PlacementOf(pod *v1.Pod, node string) wire.Placement {
	return wire.Placement{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: node}
}

func RefOf(pod *v1.Pod) wire.PodRef {
	return wire.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

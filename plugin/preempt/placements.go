package preempt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// errPodGone says that a pod was deleted or bound while its nomination was waited for.
var errPodGone = errors.New("the pod is gone or bound")

// placements knows where unbound pods are placed: nominated in the API, as the pod informer shows it,
// and assumed, as Reserve and Unreserve say. The planner needs both, since assumed pods are nowhere in
// the API. Safe for concurrent use.
type placements struct {
	mu        sync.Mutex
	known     map[types.UID]bool // every pod that the informer has, and whether it is bound
	nominated placementList
	assumed   placementList
	waiters   map[types.UID][]chan error // each is sent one answer
	waitNodes map[chan error]string      // what each waits for
}

func newPlacements() *placements {
	return &placements{
		known:     map[types.UID]bool{},
		waiters:   map[types.UID][]chan error{},
		waitNodes: map[chan error]string{},
	}
}

// observe takes in a pod as the informer shows it.
func (p *placements) observe(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pod.UID] = pod.Spec.NodeName != ""
	if pod.Spec.NodeName != "" {
		p.nominated.remove(pod.UID)
		p.assumed.remove(pod.UID)
		p.answer(pod.UID, "", errPodGone)
		return
	}
	if pod.Status.NominatedNodeName == "" {
		p.nominated.remove(pod.UID)
		return
	}
	p.nominated.put(placementOf(pod, pod.Status.NominatedNodeName))
	p.answer(pod.UID, pod.Status.NominatedNodeName, nil)
}

// removed takes in that a pod was deleted.
func (p *placements) removed(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, uid)
	p.nominated.remove(uid)
	p.assumed.remove(uid)
	p.answer(uid, "", errPodGone)
}

// knows reports whether the informer has a pod, by UID: a pod made anew under the same name is another.
func (p *placements) knows(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.known[uid]
	return ok
}

// pending reports whether a pod is on no node, neither bound nor assumed. A victim was on one: its placement
// has been taken back since.
func (p *placements) pending(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	bound, known := p.known[uid]
	_, assumed := p.assumed.find(uid)
	return known && !bound && !assumed
}

// assume notes that the scheduler has placed a pod that the API does not show as bound.
func (p *placements) assume(pod *v1.Pod, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assumed.put(placementOf(pod, node))
}

// unassume notes that the scheduler has taken a placement back.
func (p *placements) unassume(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.assumed.remove(uid)
}

// isAssumed reports whether a pod is placed in the scheduler's memory alone.
func (p *placements) isAssumed(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.assumed.find(uid)
	return ok
}

// awaitNomination waits until the informer shows the pod nominated to the node. It returns errPodGone
// where the pod is deleted or bound first, and the context's error where that ends first.
func (p *placements) awaitNomination(ctx context.Context, uid types.UID, node string) error {
	answer := make(chan error, 1)
	p.mu.Lock()
	if i, ok := p.nominated.find(uid); ok && p.nominated[i].Node == node {
		p.mu.Unlock()
		return nil
	}
	p.waiters[uid] = append(p.waiters[uid], answer)
	p.waitNodes[answer] = node
	p.mu.Unlock()

	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unwait(uid, answer)
		return ctx.Err()
	}
}

// answer tells those who wait for a pod: all of them an error, or those who wait for the node.
func (p *placements) answer(uid types.UID, node string, err error) {
	for _, waiter := range slices.Clone(p.waiters[uid]) {
		if err == nil && p.waitNodes[waiter] != node {
			continue
		}
		waiter <- err
		p.unwait(uid, waiter)
	}
}

func (p *placements) unwait(uid types.UID, waiter chan error) {
	delete(p.waitNodes, waiter)
	rest := slices.DeleteFunc(p.waiters[uid], func(w chan error) bool { return w == waiter })
	if len(rest) == 0 {
		delete(p.waiters, uid)
		return
	}
	p.waiters[uid] = rest
}

// lists are the nominated and the assumed pods, ordered by UID. `also` are nominations that the API may
// not show yet, which go before those that it shows; `except` is left out of both lists. O(both lists), and
// each of `also` moves what follows it.
func (p *placements) lists(also []wire.Placement, except types.UID) (nominated, assumed []wire.Placement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	merged := make(placementList, 0, len(p.nominated)+len(also))
	for _, place := range p.nominated {
		if _, placed := p.assumed.find(types.UID(place.UID)); !placed {
			merged = append(merged, place)
		}
	}
	for _, place := range also {
		merged.put(place)
	}
	merged.remove(except)
	placed := slices.Clone(p.assumed)
	placed.remove(except)
	return merged, placed
}

// placementList is placements ordered by UID, one a pod. A change moves what follows, which for some hundreds of pods costs
// less than putting a map in order for each request.
type placementList []wire.Placement

// find returns where a pod is, or would be.
func (p placementList) find(uid types.UID) (at int, found bool) {
	return slices.BinarySearchFunc(p, string(uid), func(place wire.Placement, uid string) int { return strings.Compare(place.UID, uid) })
}

func (p *placementList) put(place wire.Placement) {
	at, found := p.find(types.UID(place.UID))
	if found {
		(*p)[at] = place
		return
	}
	*p = slices.Insert(*p, at, place)
}

func (p *placementList) remove(uid types.UID) {
	if at, found := p.find(uid); found {
		*p = slices.Delete(*p, at, at+1)
	}
}

func placementOf(pod *v1.Pod, node string) wire.Placement {
	return wire.Placement{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: node}
}

package queues

import (
	"cmp"
	"strings"
)

// The orders of heaps of waiting pods. A pod that is due, or at rest, is in one heap of each of the first two.
const (
	byOrder     = iota // as they are to be tried
	byAge              // longest not checked first
	byTimer            // due in any case
	byCondition        // whose condition is to be checked
	orders
)

// before compares waiting pods as they are to be tried.
func before(a, b *waitingPod) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), strings.Compare(a.pod.UID, b.pod.UID))
}

// heapLinks are a waiting pod's place in one heap.
type heapLinks struct {
	left, right, up *waitingPod
	rank            int // how many steps down the right side end in nothing
}

// podHeap is a leftist heap of waiting pods: the first comes out, any can be taken out, and two become one, each in
// O(log pods) at worst. A waiting pod is in one heap of each order at most.
type podHeap struct {
	order int
	root  *waitingPod
}

func (h *podHeap) less(a, b *waitingPod) bool {
	first := 0
	switch h.order {
	case byAge:
		first = cmp.Compare(a.checked, b.checked)
	case byTimer:
		first = a.timer.Compare(b.timer)
	case byCondition:
		first = a.conditionAt.Compare(b.conditionAt)
	}
	return cmp.Or(first, before(a, b)) < 0
}

// push puts a waiting pod in that is in no heap of this order.
func (h *podHeap) push(w *waitingPod) {
	w.links[h.order] = heapLinks{rank: 1}
	h.root = h.join(h.root, w)
}

// meld takes all of another heap in, which is empty then.
func (h *podHeap) meld(other *podHeap) {
	h.root, other.root = h.join(h.root, other.root), nil
}

// remove takes a waiting pod out that is in this heap.
func (h *podHeap) remove(w *waitingPod) {
	own := w.links[h.order]
	w.links[h.order] = heapLinks{}
	below := h.join(own.left, own.right)
	if below != nil {
		below.links[h.order].up = own.up
	}
	if own.up == nil {
		h.root = below
		return
	}
	above := &own.up.links[h.order]
	if above.left == w {
		above.left = below
	} else {
		above.right = below
	}
	for up := own.up; up != nil && h.settle(up); up = up.links[h.order].up {
	}
}

// join returns the root of two trees, either of which may be nil.
func (h *podHeap) join(a, b *waitingPod) *waitingPod {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case h.less(b, a):
		a, b = b, a
	}
	links := &a.links[h.order]
	links.right = h.join(links.right, b)
	links.right.links[h.order].up = a
	h.settle(a)
	return a
}

// settle puts the higher rank to the left, and reports whether the waiting pod's own rank has changed.
func (h *podHeap) settle(w *waitingPod) bool {
	links := &w.links[h.order]
	if h.rank(links.left) < h.rank(links.right) {
		links.left, links.right = links.right, links.left
	}
	before := links.rank
	links.rank = h.rank(links.right) + 1
	return links.rank != before
}

func (h *podHeap) rank(w *waitingPod) int {
	if w == nil {
		return 0
	}
	return w.links[h.order].rank
}

// podSet are waiting pods in the first two orders.
type podSet [byAge + 1]podHeap

func newPodSet() *podSet { return &podSet{byOrder: {order: byOrder}, byAge: {order: byAge}} }

func (s *podSet) empty() bool { return s[byOrder].root == nil }

func (s *podSet) push(w *waitingPod) {
	for order := range s {
		s[order].push(w)
	}
}

func (s *podSet) meld(other *podSet) {
	for order := range s {
		s[order].meld(&other[order])
	}
}

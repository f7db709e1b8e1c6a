package preempt

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// orderLimitQueue are preemptors that were turned away because as many orders are in flight as the policy allows.
// They are tried again as orders end, in the order of the queue gate's line: by priority, then age. A pod
// that was activated keeps its turn until its cycle has ended, so that no more are activated than there is room
// for. Safe for concurrent use.
type orderLimitQueue struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.UID]*turn
}

// turnLasts is how long a turn lasts: longer than it takes a pod to come to its cycle, unless the scheduler has thousands
// before it.
const turnLasts = 10 * time.Second

// turn is one preemptor that waits.
type turn struct {
	pod      wire.PodRef
	priority int32
	created  time.Time
	until    time.Time // its turn lasts until then; zero: it has not come
}

// compare orders preemptors: higher priority, then older, then by UID.
func (t *turn) compare(other *turn) int {
	return cmp.Or(cmp.Compare(other.priority, t.priority), t.created.Compare(other.created), strings.Compare(t.pod.UID, other.pod.UID))
}

func newOrderLimitQueue(clock clock.PassiveClock) *orderLimitQueue {
	return &orderLimitQueue{clock: clock, pods: map[types.UID]*turn{}}
}

// add lets a pod wait; its turn, where it had one, is over.
func (b *orderLimitQueue) add(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[pod.UID] = &turn{pod: refOf(pod), priority: corev1helpers.PodPriority(pod), created: pod.CreationTimestamp.Time}
}

// remove lets a pod wait no longer, and reports whether it did.
func (b *orderLimitQueue) remove(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, waited := b.pods[uid]
	delete(b.pods, uid)
	return waited
}

// due takes the pods whose turn it is where so many orders may be added; next is when a turn runs out
// (zero: none does). O(waiting · log waiting) where there is room, else O(1).
func (b *orderLimitQueue) due(room int64) (pods []wire.PodRef, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room <= 0 || len(b.pods) == 0 {
		return nil, time.Time{}
	}
	now := b.clock.Now()
	var line []*turn
	for _, w := range b.pods {
		if !now.Before(w.until) {
			line = append(line, w)
			continue
		}
		if room--; next.IsZero() || w.until.Before(next) {
			next = w.until
		}
	}
	slices.SortFunc(line, (*turn).compare)
	for _, w := range line[:max(min(int64(len(line)), room), 0)] {
		w.until = now.Add(turnLasts)
		if next.IsZero() || w.until.Before(next) {
			next = w.until
		}
		pods = append(pods, w.pod)
	}
	return pods, next
}

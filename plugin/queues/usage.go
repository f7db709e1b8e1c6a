package queues

import (
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// demand is what counts of a pod in its queue.
type demand struct {
	asked     string // the queue that it names
	namespace string
	priority  int32
	amounts   []amount
	leaf      *queue // of one tree, once it is placed
	needs     []need // amounts, in that tree's terms
}

func demandOf(pod *v1.Pod) demand {
	return demand{asked: askedQueue(pod), namespace: pod.Namespace, priority: corev1helpers.PodPriority(pod), amounts: requestsOf(pod)}
}

// place puts it into its queue of a tree.
func (d *demand) place(tree *queueTree) {
	d.leaf, d.needs = tree.place(d.asked, d.namespace), tree.needs(d.amounts)
}

// like reports whether two demands are the same in every tree.
func (d *demand) like(other *demand) bool {
	return d.priority == other.priority && d.asked == other.asked && d.namespace == other.namespace && slices.Equal(d.amounts, other.amounts)
}

// in is what it takes of a resource in a queue of the tree that it is placed in; nil takes nothing. O(resources).
func (d *demand) in(q *queue, index int) int64 {
	if d == nil || !q.holds(d.leaf) {
		return 0
	}
	for _, n := range d.needs {
		if n.index == index {
			return n.value
		}
	}
	return 0
}

// member is a pod that counts in its queue: bound, assumed by the scheduler, or a preemptor with an order.
type member struct {
	demand
	label    string // the queue that it names now; asked is the one when it was placed
	bound    bool   // the informer shows it on a node
	reserved bool   // the scheduler has reserved a node for it
	held     bool   // an order makes room for it
}

// placed reports whether it is on a node, if only in the scheduler's memory.
func (m *member) placed() bool { return m.bound || m.reserved }

// ranks are what pods of each priority hold, or were promised, in each queue of a tree.
type ranks []map[int32][]int64 // by queue's number and priority: amounts by resource's index, and how many pods

// newRanks are those of no pods.
func newRanks(tree *queueTree) ranks {
	r := make(ranks, len(tree.queues))
	for i := range r {
		r[i] = map[int32][]int64{}
	}
	return r
}

// add adds what a pod of a priority needs to its queue and those above it, or takes it away: sign. O(depth × resources).
func (r ranks) add(leaf *queue, priority int32, needs []need, sign int64) {
	for _, q := range leaf.line {
		count := len(q.max)
		held := r[q.number][priority]
		if held == nil {
			held = make([]int64, count+1)
			r[q.number][priority] = held
		}
		for _, n := range needs {
			held[n.index] += sign * n.value
		}
		if held[count] += sign; held[count] == 0 {
			delete(r[q.number], priority)
		}
	}
}

// held is what pods whose priority counts hold of a resource in a queue. O(priorities).
func (r ranks) held(q *queue, index int, counts func(priority int64) bool) (total int64) {
	for priority, amounts := range r[q.number] {
		if counts(int64(priority)) {
			total += amounts[index]
		}
	}
	return total
}

// queueUsage is what pods hold, and in a tree what each queue does with all below it. It knows pods by UID, so that a pod counts once
// however often it is taken in. Not safe for concurrent use.
type queueUsage struct {
	members map[types.UID]*member
	tree    *queueTree // nil: no limits are in force
	used    [][]int64  // by queue's number and resource's index
	byRank  ranks      // the same of placed pods, by priority too: what victims may free
}

// newQueueUsage is that of no pods, without a tree.
func newQueueUsage() *queueUsage { return &queueUsage{members: map[types.UID]*member{}} }

// setTree has pods count in the queues of a tree; nil: in none. O(pods × (depth + resources)).
func (u *queueUsage) setTree(tree *queueTree) {
	u.tree, u.used, u.byRank = tree, nil, nil
	if tree == nil {
		return
	}
	u.byRank = newRanks(tree)
	for range tree.queues {
		u.used = append(u.used, make([]int64, len(tree.names)))
	}
	for _, m := range u.members {
		m.place(tree)
		u.add(m, 1)
	}
}

// placedOf is what a pod counts for in its queue of the tree; nil where it does not.
func (u *queueUsage) placedOf(uid types.UID) *demand {
	m := u.members[uid]
	if m == nil || u.tree == nil {
		return nil
	}
	own := m.demand
	return &own
}

// change takes in a change of what a pod counts for, and returns the queue that may hold less, nil where none does. One that has a place
// keeps the queue that it had when it was placed: a label that is changed later frees no quota. O(depth × resources).
func (u *queueUsage) change(uid types.UID, change func(*member)) (freed *queue) {
	before, now := u.members[uid], member{}
	if before != nil {
		now = *before
		now.asked = before.label
	}
	change(&now)
	now.label = now.asked
	if before != nil && before.placed() && now.placed() {
		now.asked = before.asked
	}
	if before != nil && now.placed() == before.placed() && now.like(&before.demand) && (now.placed() || now.held) {
		now.leaf, now.needs = before.leaf, before.needs
		*before = now
		return nil
	}
	freed = u.forget(uid)
	if now.placed() || now.held {
		if u.members[uid] = &now; u.tree != nil {
			now.place(u.tree)
			u.add(&now, 1)
		}
	}
	return freed
}

// forget takes a pod out and returns the queue that it was in, nil where it was in none.
func (u *queueUsage) forget(uid types.UID) *queue {
	m := u.members[uid]
	if m == nil {
		return nil
	}
	delete(u.members, uid)
	if u.tree == nil {
		return nil
	}
	u.add(m, -1)
	return m.leaf
}

// add adds what a pod needs to its queue of the tree and those above it, or takes it away: sign.
func (u *queueUsage) add(m *member, sign int64) {
	for _, q := range m.leaf.line {
		for _, n := range m.needs {
			u.used[q.number][n.index] += sign * n.value
		}
	}
	if m.placed() {
		u.byRank.add(m.leaf, m.priority, m.needs, sign)
	}
}

// room is what a queue has of a resource that it limits and a pod asks for.
type room struct {
	queue    *queue
	resource string
	index    int
	used     int64
	asked    int64
	max      int64
}

// isEnough reports whether so much is left as the pod asks for.
func (r room) isEnough() bool { return r.asked <= r.max-r.used }

// promisedAmount is what else is spoken for in a queue, of the resource with an index.
type promisedAmount func(q *queue, index int) int64

// rooms are those of a pod that would enter a queue, nearest queue first: all, or those that are too small. `own` is what it
// already counts for, nil where it does not, and `promised` what others were promised, nil for none of that. A pod is not held for what it
// does not ask. O(depth × resources), besides promised.
func (u *queueUsage) rooms(leaf *queue, needs []need, own *demand, promised promisedAmount, all bool) (rooms []room) {
	for _, q := range leaf.line {
		for _, n := range needs {
			if q.max[n.index] == unlimited {
				continue
			}
			one := room{queue: q, resource: u.tree.names[n.index], index: n.index, asked: n.value, max: q.max[n.index]}
			one.used = u.used[q.number][n.index] - own.in(q, n.index)
			if promised != nil {
				one.used += promised(q, n.index)
			}
			if all || !one.isEnough() {
				rooms = append(rooms, one)
			}
		}
	}
	return rooms
}

// shortages are the rooms of a pod that are too small.
func (u *queueUsage) shortages(leaf *queue, needs []need, own *demand, promised promisedAmount) []room {
	return u.rooms(leaf, needs, own, promised, false)
}

// mayPreempt reports whether a pod's queue is full, and pods of less than a priority hold enough, in each queue that is short, for their
// eviction to make room there.
func (u *queueUsage) mayPreempt(wanted *demand, own *demand, rank int64) bool {
	short := u.shortages(wanted.leaf, wanted.needs, own, nil)
	below := func(priority int64) bool { return priority < rank }
	return len(short) > 0 && !slices.ContainsFunc(short, func(r room) bool { return r.asked-(r.max-r.used) > u.byRank.held(r.queue, r.index, below) })
}

// String names queue, used, asked and max, as in "queue root.ml: cpu 48 of 50 used, 4 asked".
func (r room) String() string {
	if r.queue.path == unplacedQueue {
		return "no queue takes the pod: its label names none that its namespace may use, or it has none and its namespace has queues"
	}
	return "queue " + r.queue.path + ": " + r.resource + " " + written(r.resource, r.used) + " of " + written(r.resource, r.max) +
		" used, " + written(r.resource, r.asked) + " asked"
}

// written is an amount as manifests have it.
func written(name string, value int64) string {
	switch v1.ResourceName(name) {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(value, resource.DecimalSI).String()
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(value, resource.BinarySI).String()
	}
	return strconv.FormatInt(value, 10)
}

// rankOf is the priority below which pods may be victims of a preemptor. A DaemonSet's pod may also take
// the place of its equals.
func rankOf(pod *v1.Pod) int64 {
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return math.MinInt64
	}
	priority := int64(corev1helpers.PodPriority(pod))
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String() {
		return priority + 1
	}
	return priority
}

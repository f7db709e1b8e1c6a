package memory

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

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/wire"
)

// Bounds of trying refused pods again.
const (
	// maxRefused bounds how many are remembered. Beyond it, pods of the namespace with the most of them are left to the
	// scheduler's own events and its flush of pods that have waited five minutes.
	maxRefused = 10000
	// retryInterval is how often one pod is activated at most.
	retryInterval = 5 * time.Second
	// RetryBurst is how many pods are activated in one tick, while the planner is asked at all.
	RetryBurst = 50
	// RetryTick is how often the list is looked at.
	RetryTick = 500 * time.Millisecond
	// planUnavailableInitial and planUnavailableMax bound the wait after a plan that could not be had.
	planUnavailableInitial = time.Second
	PlanUnavailableMax     = 30 * time.Second
	// askedAgain is when a pod is tried again that a late answer has refused; it doubles with each of those in a row, up to askedAgainMax, which
	// is when kube-scheduler tries it again without any event.
	askedAgain    = 10 * time.Second
	askedAgainMax = 5 * time.Minute
	// maxChanges is how many changes of objects are remembered, for refusals that were asked for before them.
	maxChanges = 256
)

// Kinds of objects that a refusal depends on. A ConfigMap is the policy's, whose change the control state
// tells; the others are watched here.
const (
	KindPDB           = "PodDisruptionBudget"
	KindPriorityClass = "PriorityClass"
	KindConfigMap     = "ConfigMap"
	// KindOrders is no object: pods that wait for orders to be stored and carried out depend on it, and under the name
	// orderLimit those for which there is no room in the planner's limit of orders. The namespace of such a dependency is that
	// of the orders that have to end, empty where any will do.
	KindOrders = "orders"
	OrderLimit = "limits.ordersInFlight"
	// KindNode is any node.
	KindNode = "Node"
)

// pendingRetry is a pod that waits for a time or for an object.
type pendingRetry struct {
	pod           wire.PodRef
	priority      int32
	created       time.Time
	at            time.Time // zero: no time alone helps
	dependsOn     []wire.Dependency
	due           bool // an object it depends on has changed
	lastActivated time.Time
	failures      int  // how often in a row no plan could be had
	lateRefusals  int  // how often in a row a late answer has refused it
	atOnce        bool // its time counts however lately it was activated
	turn          bool // it is due since an order has ended
	turns         int  // that it has had since it last came to a cycle
}

// compare orders pods: of one priority those first that were activated never, or longest ago, then older, then by UID. So pods that are due
// again and again do not keep younger ones from being tried at all.
func (p *pendingRetry) compare(other *pendingRetry) int {
	return cmp.Or(
		cmp.Compare(other.priority, p.priority), p.lastActivated.Compare(other.lastActivated),
		p.created.Compare(other.created), strings.Compare(p.pod.UID, other.pod.UID),
	)
}

// limited reports whether a pod waits for room in the limit of orders, and of which namespace one has to end; empty: any.
func (p *pendingRetry) limited() (namespace string, ok bool) {
	at := slices.IndexFunc(p.dependsOn, func(d wire.Dependency) bool { return d.Kind == KindOrders && d.Name == OrderLimit })
	if at < 0 {
		return "", false
	}
	return p.dependsOn[at].Namespace, true
}

// again reports whether a pod is tried again however lately it was activated, and stays remembered when it is.
func (p *pendingRetry) again() bool { return p.failures > 0 || p.atOnce }

// waitUntil has time alone help.
func (p *pendingRetry) waitUntil(at time.Time) {
	p.at, p.dependsOn, p.due, p.turn, p.turns = at, nil, false, false, 0
}

// Retries remembers refused pods by UID and says when to try which again. It calls nothing of the
// scheduler. Safe for concurrent use.
type Retries struct {
	clock clock.PassiveClock
	find  func(wire.PodRef) *v1.Pod // the pod as the informer has it, nil where it is gone
	Turns chan struct{}             // sent to, without blocking, when a pod has a turn

	mu      sync.Mutex
	pods    map[types.UID]*pendingRetry
	changes Moment // so many so far
	recent  [maxChanges]func(wire.Dependency) bool
}

// Moment is a point in the row of changes of objects that refusals depend on.
type Moment uint64

func NewRetries(clock clock.PassiveClock, find func(wire.PodRef) *v1.Pod) *Retries {
	return &Retries{clock: clock, find: find, Turns: make(chan struct{}, 1), pods: map[types.UID]*pendingRetry{}}
}

// Now is the moment that refuse takes, read before what may be refused is looked at.
func (r *Retries) Now() Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// Refuse remembers a refused pod with what its refusal depends on. What has changed of that since it was asked may
// not have been known to whoever refused. A refusal that depends on nothing is forgotten: only the cluster's own
// events can help.
func (r *Retries) Refuse(pod wire.PodRef, asked Moment, at time.Time, dependsOn []wire.Dependency) {
	if at.IsZero() && len(dependsOn) == 0 {
		r.Forget(types.UID(pod.UID))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse(r.entry(pod), asked, at, dependsOn)
	r.shrink()
}

// RefuseLate is Refuse for an answer to a question of a cycle before: pods may have been placed since, and there is no event for a pod that
// has become removable. So it is tried again soon, though ever later: where all answers are late, pods that are refused again and again
// would keep the planner and the scheduler so busy that they stay so.
func (r *Retries) RefuseLate(pod wire.PodRef, asked Moment, at time.Time, dependsOn []wire.Dependency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.entry(pod)
	late := entry.lateRefusals
	again := r.clock.Now().Add(min(askedAgain<<min(late, 10), askedAgainMax))
	r.refuse(entry, asked, goroutines.Sooner(at, again), dependsOn)
	entry.lateRefusals = late + 1
	r.shrink()
}

// refuse has a pod wait for a time and for objects. The caller holds the lock.
func (r *Retries) refuse(entry *pendingRetry, asked Moment, at time.Time, dependsOn []wire.Dependency) {
	entry.waitUntil(at)
	entry.dependsOn, entry.due, entry.failures, entry.lateRefusals, entry.atOnce = dependsOn, r.changedSince(asked, dependsOn), 0, 0, false
}

// Postpone remembers a pod that time alone helps.
func (r *Retries) Postpone(pod wire.PodRef, at time.Time) { r.Refuse(pod, 0, at, nil) }

// changedSince reports whether one of some objects has changed, as far as is remembered. O(changes since · objects).
func (r *Retries) changedSince(asked Moment, objects []wire.Dependency) bool {
	if r.changes-asked > maxChanges {
		return len(objects) > 0
	}
	for at := asked; at < r.changes; at++ {
		if slices.ContainsFunc(objects, r.recent[at%maxChanges]) {
			return true
		}
	}
	return false
}

// ModeHeld remembers a pod for which the mode in force lets nothing be done; the policy may say otherwise.
func (r *Retries) ModeHeld(pod wire.PodRef, asked Moment) {
	r.Refuse(pod, asked, time.Time{}, []wire.Dependency{{Kind: KindConfigMap, Name: "makeway-policy"}})
}

// PlanUnavailable remembers a pod for which no plan could be had; the wait doubles each time. notBefore is
// when the planner may be asked again, and dependsOn what may have it answer sooner.
func (r *Retries) PlanUnavailable(pod wire.PodRef, notBefore time.Time, dependsOn ...wire.Dependency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.entry(pod)
	wait := min(planUnavailableInitial<<min(entry.failures, 10), PlanUnavailableMax)
	entry.failures++
	entry.waitUntil(r.clock.Now().Add(wait))
	entry.dependsOn = dependsOn
	if entry.at.Before(notBefore) {
		entry.at = notBefore
	}
	r.shrink()
}

// Unplanned returns how often in a row no plan could be had for a pod.
func (r *Retries) Unplanned(uid types.UID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry := r.pods[uid]; entry != nil {
		return entry.failures
	}
	return 0
}

// TryAt remembers a pod that is tried again at a time, however lately it was activated: its order is over, the planner is not asked before
// that, or a verification goes on. None of these is a plan that could not be had.
func (r *Retries) TryAt(pod wire.PodRef, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.entry(pod)
	entry.waitUntil(at)
	entry.atOnce = true
	r.shrink()
}

// entry is what is remembered of a pod. Callers of this and the following hold the lock, and shrink afterwards.
func (r *Retries) entry(pod wire.PodRef) *pendingRetry {
	uid := types.UID(pod.UID)
	entry := r.pods[uid]
	if entry == nil {
		entry = &pendingRetry{}
		if known := r.find(pod); known != nil {
			entry.priority, entry.created = corev1helpers.PodPriority(known), known.CreationTimestamp.Time
		}
		r.pods[uid] = entry
	}
	entry.pod = pod
	return entry
}

// shrink keeps as many pods as may be remembered: where one too many is, one of the namespace with the most goes, so
// that the pods of one tenant do not displace those of others. O(1), and O(pods) where one goes.
func (r *Retries) shrink() {
	if len(r.pods) <= maxRefused {
		return
	}
	most, counts := "", map[string]int{}
	for _, entry := range r.pods {
		namespace := entry.pod.Namespace
		if counts[namespace]++; counts[namespace] > counts[most] {
			most = namespace
		}
	}
	var last types.UID
	for uid, entry := range r.pods {
		if entry.pod.Namespace == most && (last == "" || entry.after(r.pods[last])) {
			last = uid
		}
	}
	delete(r.pods, last)
}

// after reports whether a pod is forgotten before another: one that no time helps, then one whose time comes later.
func (p *pendingRetry) after(other *pendingRetry) bool {
	if p.at.IsZero() || other.at.IsZero() {
		return p.at.IsZero() && !other.at.IsZero()
	}
	return p.at.After(other.at)
}

// Forget drops a pod that an order makes room for, that is bound or gone, or that nothing but the cluster's own events can help.
func (r *Retries) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}

// Changed marks the pods that depend on an object; without a name, on any of the kind. O(pods).
func (r *Retries) Changed(kind, namespace, name string) {
	r.mark(func(d wire.Dependency) bool {
		return d.Kind == kind && (name == "" || d.Namespace == namespace && d.Name == name)
	})
}

// waitsForOrders reports whether it is for orders to be stored and carried out that a pod waits.
func waitsForOrders(d wire.Dependency) bool { return d.Kind == KindOrders && d.Name != OrderLimit }

// OrdersCarried marks the pods that wait for orders to be stored and carried out. O(pods).
func (r *Retries) OrdersCarried() { r.mark(waitsForOrders) }

// OrderEnded gives a turn to the first pod that waits for room in the limit of orders, and marks those that wait for orders to be carried
// out where that has been done. namespace is that of the order's preemptor, empty where that is not known. O(pods).
func (r *Retries) OrderEnded(namespace string, carried bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(func(d wire.Dependency) bool { return d.Kind == KindOrders && (carried || d.Name == OrderLimit) })
	if carried {
		r.markDue(waitsForOrders)
	}
	r.giveTurn(namespace)
}

// giveTurn has the first pod that waits for room in the limit of orders be due, of those for which one of a namespace's orders,
// or any, had to end; who has come to no cycle since its last turn comes after others, however important it is. So no more are activated
// than there is room for. Where it makes no use of that, the others wait for the next end of an order, or for the times of their refusals.
// O(pods).
func (r *Retries) giveTurn(namespace string) {
	var first *pendingRetry
	for _, entry := range r.pods {
		of, waits := entry.limited()
		if waits && !entry.turn && (of == "" || of == namespace) && (first == nil || cmp.Or(cmp.Compare(entry.turns, first.turns), entry.compare(first)) < 0) {
			first = entry
		}
	}
	if first == nil {
		return
	}
	first.turn, first.due = true, true
	select {
	case r.Turns <- struct{}{}:
	default:
	}
}

func (r *Retries) mark(meant func(wire.Dependency) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(meant)
	r.markDue(meant)
}

// note remembers a change. Callers of this and the next hold the lock.
func (r *Retries) note(meant func(wire.Dependency) bool) {
	r.recent[r.changes%maxChanges] = meant
	r.changes++
}

func (r *Retries) markDue(meant func(wire.Dependency) bool) {
	for _, entry := range r.pods {
		entry.due = entry.due || slices.ContainsFunc(entry.dependsOn, meant)
	}
}

// Due takes the pods to activate now, at most so many, in the order of compare, each at most once an
// interval. A pod stays remembered for the objects it depends on, or where it is tried again at once; its time is used up.
// turns: those alone whose turn has come. O(pods + those due · log of them).
func (r *Retries) Due(most int, turns bool) (pods []wire.PodRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	timeCame := func(entry *pendingRetry) bool { return !entry.at.IsZero() && !now.Before(entry.at) }
	var due []*pendingRetry
	for _, entry := range r.pods {
		switch {
		case turns && !entry.turn:
		case !entry.due && !timeCame(entry):
		case !entry.again() && !entry.turn && now.Sub(entry.lastActivated) < retryInterval:
		default:
			due = append(due, entry)
		}
	}
	slices.SortFunc(due, (*pendingRetry).compare)
	for _, entry := range due[:min(len(due), most)] {
		if timeCame(entry) {
			entry.at = time.Time{}
		}
		if entry.turn {
			entry.turns++
		}
		entry.due, entry.turn, entry.lastActivated = false, false, now
		if !entry.again() && entry.lateRefusals == 0 && len(entry.dependsOn) == 0 {
			delete(r.pods, types.UID(entry.pod.UID))
		}
		pods = append(pods, entry.pod)
	}
	return pods
}

func (r *Retries) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods)
}

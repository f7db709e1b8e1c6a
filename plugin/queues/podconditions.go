package queues

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/wire"
)

// Reasons of the condition PodScheduled of a pod that its queue holds. Cluster autoscalers add nodes for pods whose
// reason is Unschedulable, and no node helps these.
const (
	reasonQueueFull     = "QueueFull"
	reasonLimitsUnknown = "QueueLimitsUnknown"
)

// How conditions are written.
const (
	// conditionSettle is how long after a pod was held its condition is checked: where a cycle has held it, the scheduler
	// writes the condition after that.
	conditionSettle = 200 * time.Millisecond
	// conditionRetry is when to try again after the API server has not taken a condition.
	conditionRetry = time.Second
	// clearNominationRetry is when to check again a nomination whose order may be alive.
	clearNominationRetry = 10 * time.Second
	// conditionQPS and conditionBurst bound the writes. They have a client of their own, since the scheduler's binds pods.
	conditionQPS   = 50
	conditionBurst = 100
	// conditionTimeout bounds one write.
	conditionTimeout = 10 * time.Second
)

// restShare: of so many conditions in a row that could be urgent, one is not, so that the others are not starved.
const restShare = 10

// conditionUpdates are the pods whose condition is to be checked, since their queue holds them. Those that look like a lack of
// nodes are urgent. Safe for concurrent use; it calls nothing.
type conditionUpdates struct {
	clock   clock.PassiveClock
	changed chan struct{}

	mu           sync.Mutex
	pods         map[types.UID]*conditionUpdate
	urgent, rest timedHeap[*conditionUpdate]
	inARow       int // urgent ones that were taken while others were due
}

// conditionUpdate is one pod of them.
type conditionUpdate struct {
	uid    types.UID
	at     time.Time // when to check
	urgent bool
	index  int // in its heap
}

func (u *conditionUpdate) dueAt() time.Time { return u.at }
func (u *conditionUpdate) placed(index int) { u.index = index }

func newConditionUpdates(clock clock.PassiveClock) *conditionUpdates {
	return &conditionUpdates{clock: clock, changed: make(chan struct{}, 1), pods: map[types.UID]*conditionUpdate{}}
}

// add lets a pod's condition be checked soon, before others where it is urgent.
func (t *conditionUpdates) add(uid types.UID, urgent bool) { t.addIn(uid, conditionSettle, urgent) }

// addIn lets it be checked after a while. A pod that is there keeps its turn and its urgency. O(log pods).
func (t *conditionUpdates) addIn(uid types.UID, wait time.Duration, urgent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.clock.Now().Add(wait)
	if is := t.pods[uid]; is != nil {
		if is.at.Before(at) {
			at = is.at
		}
		urgent = urgent || is.urgent
		t.remove(is)
	}
	entry := &conditionUpdate{uid: uid, at: at, urgent: urgent}
	t.pods[uid] = entry
	heap.Push(t.heapOf(entry), entry)
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// forget leaves a pod's condition as it is.
func (t *conditionUpdates) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is := t.pods[uid]; is != nil {
		t.remove(is)
	}
}

// take takes the pod to check now, urgent ones first and each in the order in which they are due. Where there is none
// it returns when to ask again (zero: when something changes). O(log pods).
func (t *conditionUpdates) take() (taken conditionUpdate, ok bool, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	urgent, rest := firstDue(t.urgent, now), firstDue(t.rest, now)
	chosen := urgent
	switch {
	case urgent == nil:
		chosen, t.inARow = rest, 0
	case rest == nil:
		t.inARow = 0
	case t.inARow >= restShare-1:
		chosen, t.inARow = rest, 0
	default:
		t.inARow++
	}
	if chosen != nil {
		t.remove(chosen)
		return *chosen, true, time.Time{}
	}
	for _, h := range []timedHeap[*conditionUpdate]{t.urgent, t.rest} {
		if len(h) > 0 && (next.IsZero() || h[0].at.Before(next)) {
			next = h[0].at
		}
	}
	return conditionUpdate{}, false, next
}

func (t *conditionUpdates) remove(entry *conditionUpdate) {
	heap.Remove(t.heapOf(entry), entry.index)
	delete(t.pods, entry.uid)
}

func (t *conditionUpdates) heapOf(entry *conditionUpdate) *timedHeap[*conditionUpdate] {
	if entry.urgent {
		return &t.urgent
	}
	return &t.rest
}

// firstDue is the first of a heap where it is due, else nil.
func firstDue(h timedHeap[*conditionUpdate], now time.Time) *conditionUpdate {
	if len(h) == 0 || now.Before(h[0].at) {
		return nil
	}
	return h[0]
}

// looksUnschedulable reports whether a pod's condition is what cluster autoscalers look for.
func looksUnschedulable(pod *v1.Pod) bool {
	_, condition := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	return condition != nil && condition.Reason == v1.PodReasonUnschedulable
}

// heldPod is a pod that its queue holds, and why.
type heldPod struct {
	pod     wire.PodRef
	reason  string
	about   string // what a message begins with that says so
	message string
}

// heldPodOf is the pod where its queue holds it.
func (g *Gate) heldPodOf(uid types.UID) (held heldPod, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.waiting.pods[uid]
	if w == nil || !w.held || w.promised {
		return heldPod{}, false
	}
	held = heldPod{pod: w.pod, reason: reasonQueueFull, about: w.about, message: w.message}
	if w.about == unknownLimits {
		held.reason = reasonLimitsUnknown
	}
	return held, true
}

// condition is what a held pod's condition is to be; nil where it says so already. What a scheduling cycle has
// written of the same queue is kept, since it says more.
func (h heldPod) condition(pod *v1.Pod, now time.Time) *v1.PodCondition {
	_, is := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	condition := &v1.PodCondition{
		Type:               v1.PodScheduled,
		Status:             v1.ConditionFalse,
		Reason:             h.reason,
		Message:            h.message,
		LastTransitionTime: metav1.NewTime(now),
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, v1.PodScheduled),
	}
	if is == nil {
		return condition
	}
	if is.Status == condition.Status {
		condition.LastTransitionTime = is.LastTransitionTime
	}
	if strings.Contains(is.Message, h.about) {
		condition.Message = is.Message
	}
	if is.Reason == condition.Reason && is.Message == condition.Message {
		return nil
	}
	return condition
}

// runConditionUpdates lets the conditions of pods that their queue holds say so.
func (s *scheduler) runConditionUpdates(ctx context.Context) {
	client := conditionClient(s.handle)
	for ctx.Err() == nil {
		if !s.leadership.Now(ctx) {
			goroutines.Sleep(ctx, standbyPause) // a standby's queue is not what its leader sees
			continue
		}
		due, ok, next := s.gate.conditionUpdates.take()
		if ok {
			s.updateCondition(ctx, client, due.uid, due.urgent)
			continue
		}
		goroutines.Wait(ctx, s.gate.clock, next, s.gate.conditionUpdates.changed)
	}
}

// conditionClient is a client whose rate is its own.
func conditionClient(handle fwk.Handle) kubernetes.Interface {
	given := handle.KubeConfig()
	if given == nil {
		return handle.ClientSet()
	}
	config := restclient.CopyConfig(given)
	config.QPS, config.Burst, config.RateLimiter = conditionQPS, conditionBurst, nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return handle.ClientSet()
	}
	return client
}

// updateCondition writes one pod's condition, where its queue holds it still and the condition does not say so, and ends a
// nomination that no order stands behind: the scheduler would keep room on that node for a pod that may not come. An
// Event says the same as the condition where no scheduling cycle has written one.
func (s *scheduler) updateCondition(ctx context.Context, client kubernetes.Interface, uid types.UID, urgent bool) {
	defer goroutines.RecoverPanic(ctx, "queue_conditions", nil)
	held, ok := s.gate.heldPodOf(uid)
	if !ok {
		return
	}
	pod := s.Pending(held.pod)
	if pod == nil || pod.DeletionTimestamp != nil {
		return
	}
	condition := held.condition(pod, s.gate.clock.Now())
	clearNomination := pod.Status.NominatedNodeName != "" && s.mayClearNomination(uid)
	if clearNomination && s.line.storedOrderLives(ctx, uid) {
		clearNomination = false
		s.gate.conditionUpdates.addIn(uid, clearNominationRetry, false)
	}
	if condition == nil && !clearNomination {
		return
	}
	err := PatchStatus(ctx, client, pod, condition, clearNomination)
	switch {
	case err == nil:
		if clearNomination && s.mayClearNomination(uid) {
			s.handle.DeleteNominatedPodIfExists(pod)
			klog.FromContext(ctx).Info("nomination_ended", "pod", klog.KObj(pod), "pod_uid", uid, "node", pod.Status.NominatedNodeName, "reason", held.message)
		}
		if condition == nil {
			return
		}
		conditionsWritten.Inc()
		if condition.Message == held.message {
			s.recorder(pod).Eventf(pod, nil, v1.EventTypeWarning, held.reason, "Scheduling", "%s", held.message)
		}
	case apierrors.IsNotFound(err), ctx.Err() != nil:
	case apierrors.IsConflict(err):
		s.gate.conditionUpdates.addIn(uid, conditionSettle, urgent) // for the informer to show what has changed
	default:
		klog.FromContext(ctx).Error(err, "queue_condition_not_written", "pod", klog.KObj(pod), "pod_uid", uid)
		s.gate.conditionUpdates.addIn(uid, conditionRetry, urgent)
	}
}

// mayClearNomination reports whether nothing makes or keeps room for a held pod: it has no order in flight, and no place in
// its queue.
func (s *scheduler) mayClearNomination(uid types.UID) bool {
	return !s.line.inFlight(uid) && !s.gate.Counts(uid)
}

// PatchStatus writes a condition of a pod, where there is one, and ends its nomination, unless the pod has changed: by now it may
// have a node.
func PatchStatus(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, condition *v1.PodCondition, clearNomination bool) error {
	ctx, cancel := context.WithTimeout(ctx, conditionTimeout)
	defer cancel()
	status := map[string]any{}
	if condition != nil {
		status["conditions"] = []v1.PodCondition{*condition}
	}
	if clearNomination {
		status["nominatedNodeName"] = nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encode the status of a pod: %w", err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

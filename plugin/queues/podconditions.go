package queues

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// Conditions are written in batches of conditionBatch, of which restShare are for pods that do not look like a lack of nodes.
const (
	conditionBatch = 20
	restShare      = 2
)

// dueConditions are the waiting pods whose condition is to be checked now, since their queue holds them: those that look like a lack of nodes,
// and the others; each in the order in which they are due. O(waiting · log of those due).
func (g *Gate) dueConditions() (urgent, others []types.UID) {
	type due struct {
		uid types.UID
		at  time.Time
	}
	var those [2][]due
	g.mu.Lock()
	now := g.clock.Now()
	for _, w := range g.waiting.line {
		one := due{types.UID(w.pod.UID), w.conditionAt}
		switch {
		case one.at.IsZero() || now.Before(one.at):
		case w.unschedulable:
			those[0] = append(those[0], one)
		default:
			those[1] = append(those[1], one)
		}
	}
	g.mu.Unlock()
	inOrder := func(those []due) (uids []types.UID) {
		slices.SortStableFunc(those, func(a, b due) int { return a.at.Compare(b.at) })
		for _, one := range those {
			uids = append(uids, one.uid)
		}
		return uids
	}
	return inOrder(those[0]), inOrder(those[1])
}

// checkConditionIn has a waiting pod's condition checked again after a while.
func (g *Gate) checkConditionIn(uid types.UID, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.waiting.pods[uid]; w != nil {
		w.checkCondition(g.clock.Now().Add(wait))
	}
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

// heldPodOf is the pod where its queue holds it, whose condition is checked now.
func (g *Gate) heldPodOf(uid types.UID) (held heldPod, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.waiting.pods[uid]
	if w != nil {
		w.conditionAt = time.Time{}
	}
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
		if !s.updateConditions(ctx, client) {
			goroutines.Sleep(ctx, conditionSettle)
		}
	}
}

// updateConditions checks the conditions that are due until a batch of them was written, and reports whether any was due. Those that look
// like a lack of nodes come first, but keep not all of a batch from the others.
func (s *scheduler) updateConditions(ctx context.Context, client kubernetes.Interface) (due bool) {
	urgent, others := s.gate.dueConditions()
	written := 0
	update := func(uids []types.UID, most int) {
		for _, uid := range uids {
			if written >= most {
				return
			}
			if s.updateCondition(ctx, client, uid) {
				written++
			}
		}
	}
	update(urgent, conditionBatch-restShare)
	update(others, conditionBatch)
	return len(urgent)+len(others) > 0
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
// Event says the same as the condition where no scheduling cycle has written one. It reports whether it asked the API server.
func (s *scheduler) updateCondition(ctx context.Context, client kubernetes.Interface, uid types.UID) (asked bool) {
	defer goroutines.RecoverPanic(ctx, "queue_conditions", nil)
	held, ok := s.gate.heldPodOf(uid)
	if !ok {
		return false
	}
	pod := s.Pending(held.pod)
	if pod == nil || pod.DeletionTimestamp != nil {
		return false
	}
	condition := held.condition(pod, s.gate.clock.Now())
	clearNomination := pod.Status.NominatedNodeName != "" && !s.gate.Counts(uid)
	if lives := s.gate.orderLives.Load(); clearNomination && lives != nil && (*lives)(ctx, uid) {
		clearNomination = false
		s.gate.checkConditionIn(uid, clearNominationRetry)
	}
	if condition == nil && !clearNomination {
		return false
	}
	err := PatchStatus(ctx, client, pod, condition, clearNomination)
	switch {
	case err == nil:
		if clearNomination && !s.gate.Counts(uid) {
			s.handle.DeleteNominatedPodIfExists(pod)
			klog.FromContext(ctx).Info("nomination_ended", "pod", klog.KObj(pod), "pod_uid", uid, "node", pod.Status.NominatedNodeName, "reason", held.message)
		}
		if condition != nil && condition.Message == held.message {
			s.recorder(pod).Eventf(pod, nil, v1.EventTypeWarning, held.reason, "Scheduling", "%s", held.message)
		}
	case apierrors.IsNotFound(err), ctx.Err() != nil:
	case apierrors.IsConflict(err):
		s.gate.checkConditionIn(uid, conditionSettle) // for the informer to show what has changed
	default:
		klog.FromContext(ctx).Error(err, "queue_condition_not_written", "pod", klog.KObj(pod), "pod_uid", uid)
		s.gate.checkConditionIn(uid, conditionRetry)
	}
	return true
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

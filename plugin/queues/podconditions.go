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

// takeConditions returns copies of the waiting pods whose condition is to be checked now, since their queue holds them, a batch at most:
// those that look like a lack of nodes first, though not all of a batch, each kind in the order in which they are due. any: some were due.
// O(waiting · log of those due).
func (g *Gate) takeConditions() (held []waitingPod, any bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	var urgent, others []*waitingPod
	for _, w := range g.waiting.line {
		switch {
		case w.conditionAt.IsZero() || now.Before(w.conditionAt):
		case w.unschedulable:
			urgent = append(urgent, w)
		default:
			others = append(others, w)
		}
	}
	take := func(due []*waitingPod, most int) {
		slices.SortStableFunc(due, func(a, b *waitingPod) int { return a.conditionAt.Compare(b.conditionAt) })
		for _, w := range due[:min(len(due), most)] {
			w.conditionAt = time.Time{}
			if w.held && !w.promised {
				held = append(held, *w)
			}
		}
	}
	take(urgent, conditionBatch-restShare)
	take(others, conditionBatch-len(held))
	return held, len(urgent)+len(others) > 0
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

// condition is what a held pod's condition is to be; nil where it says so already. What a scheduling cycle has
// written of the same queue is kept, since it says more.
func (w *waitingPod) condition(pod *v1.Pod, now time.Time) *v1.PodCondition {
	reason := reasonQueueFull
	if w.about == unknownLimits {
		reason = reasonLimitsUnknown
	}
	_, is := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	condition := &v1.PodCondition{
		Type:               v1.PodScheduled,
		Status:             v1.ConditionFalse,
		Reason:             reason,
		Message:            w.message,
		LastTransitionTime: metav1.NewTime(now),
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, v1.PodScheduled),
	}
	if is == nil {
		return condition
	}
	if is.Status == condition.Status {
		condition.LastTransitionTime = is.LastTransitionTime
	}
	if strings.Contains(is.Message, w.about) {
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
		held, any := s.gate.takeConditions()
		for i := range held {
			s.updateCondition(ctx, client, &held[i])
		}
		if !any {
			goroutines.Sleep(ctx, conditionSettle)
		}
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
func (s *scheduler) updateCondition(ctx context.Context, client kubernetes.Interface, held *waitingPod) {
	defer goroutines.RecoverPanic(ctx, "queue_conditions", nil)
	pod := s.Pending(held.pod)
	if pod == nil || pod.DeletionTimestamp != nil {
		return
	}
	uid := pod.UID
	condition := held.condition(pod, s.gate.clock.Now())
	clearNomination := pod.Status.NominatedNodeName != "" && !s.gate.Counts(uid)
	if lives := s.gate.orderLives.Load(); clearNomination && lives != nil && (*lives)(ctx, uid) {
		clearNomination = false
		s.gate.checkConditionIn(uid, clearNominationRetry)
	}
	if condition == nil && !clearNomination {
		return
	}
	err := PatchStatus(ctx, client, pod, condition, clearNomination)
	switch {
	case err == nil:
		if clearNomination && !s.gate.Counts(uid) {
			s.handle.DeleteNominatedPodIfExists(pod)
			klog.FromContext(ctx).Info("nomination_ended", "pod", klog.KObj(pod), "pod_uid", uid, "node", pod.Status.NominatedNodeName, "reason", held.message)
		}
		if condition != nil && condition.Message == held.message {
			s.recorder(pod).Eventf(pod, nil, v1.EventTypeWarning, condition.Reason, "Scheduling", "%s", held.message)
		}
	case apierrors.IsNotFound(err), ctx.Err() != nil:
	case apierrors.IsConflict(err):
		s.gate.checkConditionIn(uid, conditionSettle) // for the informer to show what has changed
	default:
		klog.FromContext(ctx).Error(err, "queue_condition_not_written", "pod", klog.KObj(pod), "pod_uid", uid)
		s.gate.checkConditionIn(uid, conditionRetry)
	}
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

package memory

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/lru"
)

// Delays remembers since when pods of delayed classes are unschedulable. Bounded: where more than maxRefused were asked about lately, the
// conditions of the others say it. Safe for concurrent use.
type Delays struct{ *lru.Cache }

func newDelays() Delays { return Delays{lru.New(maxRefused)} }

// Of is since when a pod that no node fits now is unschedulable.
func (d Delays) Of(pod *v1.Pod, now time.Time) time.Time {
	if known, ok := d.Get(pod.UID); ok {
		return known.(time.Time)
	}
	since := unschedulableSince(pod, now)
	d.Add(pod.UID, since)
	return since
}

// PreemptionDelay is an annotation of a PriorityClass: so long its pods are pending before they preempt; a Go duration.
const PreemptionDelay = "makeway.dev/preemption-delay"

// longestDelay is the longest that is accepted.
const longestDelay = time.Hour

// longestDelayText bounds the annotation's value, in bytes; with so few no number is too large for either language.
const longestDelayText = 16

// DelayOf reads the annotation: 0 where there is none, or no class. The error says what is wrong with a value; it delays
// nothing. O(1).
func DelayOf(class *schedulingv1.PriorityClass) (time.Duration, error) {
	if class == nil {
		return 0, nil
	}
	text, there := class.Annotations[PreemptionDelay]
	if !there {
		return 0, nil
	}
	delay, err := time.ParseDuration(text)
	if len(text) > longestDelayText || err != nil || strings.HasPrefix(text, "-") || delay > longestDelay {
		return 0, fmt.Errorf("annotation %s: %.80q is no duration such as 30s or 5m, at most %s", PreemptionDelay, text, longestDelay)
	}
	return delay, nil
}

// unschedulableSince is since when no node fits a pod that none fits now, as its condition says it; else now. Whoever asks
// keeps the first answer: later on the condition may name an earlier moment, since where its queue or scheduling gates held
// the pod before, the condition keeps the time from then. O(conditions).
func unschedulableSince(pod *v1.Pod, now time.Time) time.Time {
	_, said := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	if said == nil || said.Status != v1.ConditionFalse || said.Reason != v1.PodReasonUnschedulable || said.LastTransitionTime.IsZero() || !said.LastTransitionTime.Time.Before(now) {
		return now
	}
	return said.LastTransitionTime.Time
}

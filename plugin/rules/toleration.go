package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Annotations of a PriorityClass, from the KEP "Preemption Toleration" of kubernetes-sigs/scheduler-plugins.
const (
	// MinimumPreemptablePriority: from this priority on a preemptor may remove the class's pods at once.
	// Absent: one more than the class's value.
	MinimumPreemptablePriority = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
	// TolerationSeconds: so long since it was scheduled a pod stays; negative: forever; absent or 0: not at all.
	TolerationSeconds = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
)

// longestNumber is how many digits an annotation's number may have.
const longestNumber = 25

// CanToleratePreemption reports whether a pod is exempt from preemption by another, by its PriorityClass. It is the
// function that the KEP "Preemption Toleration" promises to other plugins. Whether the victim's priority is
// the lower one is not its question. A class that is gone, or whose annotations are no numbers, exempts its pods:
// protect when in doubt. The error is of a lister that could not be read, and comes with true. O(1).
func CanToleratePreemption(victimCandidate, preemptor *v1.Pod, classes schedulinglisters.PriorityClassLister, now time.Time) (bool, error) {
	name := victimCandidate.Spec.PriorityClassName
	if name == "" {
		return false, nil
	}
	class, err := classes.Get(name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return true, fmt.Errorf("PriorityClass %s of pod %s/%s: %w", name, victimCandidate.Namespace, victimCandidate.Name, err)
	}
	return ToleratesPreemption(victimCandidate, class, corev1helpers.PodPriority(preemptor), now), nil
}

// ToleratesPreemption is CanToleratePreemption for one who has the victim's PriorityClass: nil where it is gone. O(1).
func ToleratesPreemption(victim *v1.Pod, class *schedulingv1.PriorityClass, preemptorPriority int32, now time.Time) bool {
	if victim.Spec.PriorityClassName == "" {
		return false
	}
	if class == nil {
		return true
	}
	minimumText, hasMinimum := class.Annotations[MinimumPreemptablePriority]
	secondsText, hasSeconds := class.Annotations[TolerationSeconds]
	if !hasMinimum && !hasSeconds {
		return false
	}
	minimum, seconds := int64(class.Value)+1, int64(0)
	var readable bool
	if hasMinimum {
		if minimum, readable = whole(minimumText, 32); !readable {
			return true
		}
	}
	if hasSeconds {
		if seconds, readable = whole(secondsText, 64); !readable {
			return true
		}
	}
	switch {
	case seconds == 0, int64(preemptorPriority) >= minimum:
		return false
	case seconds < 0:
		return true
	}
	scheduled := scheduledSince(victim)
	if scheduled.IsZero() || seconds > math.MaxInt64/2-scheduled.Unix() {
		return true // it lasts longer than time can be told
	}
	// The toleration ends after its last second.
	return !now.After(time.Unix(scheduled.Unix()+seconds, int64(scheduled.Nanosecond())))
}

// scheduledSince is since when a pod has been scheduled, zero where it does not say.
func scheduledSince(pod *v1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != v1.PodScheduled {
			continue
		}
		if condition.Status == v1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
		break
	}
	return time.Time{}
}

// whole reads a whole number of so many bits.
func whole(text string, bits int) (int64, bool) {
	if len(strings.TrimLeft(text, "+-")) > longestNumber {
		return 0, false
	}
	number, err := strconv.ParseInt(text, 10, bits)
	return number, err == nil
}

package rules

import (
	"encoding/json"
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

// TolerationRecordName is the ConfigMap that keeps PriorityClasses which tolerate preemption beyond their deletion.
const TolerationRecordName = "makeway-tolerations"

// TolerationRecord has the PriorityClasses of that ConfigMap by name; nil: it has never been read.
type TolerationRecord map[string]*schedulingv1.PriorityClass

// ParseTolerationRecord reads the data of the ConfigMap: under the name of each class the class in JSON.
func ParseTolerationRecord(data map[string]string) (TolerationRecord, error) {
	record := make(TolerationRecord, len(data))
	for name, text := range data {
		class := &schedulingv1.PriorityClass{}
		if err := json.Unmarshal([]byte(text), class); err != nil {
			return nil, fmt.Errorf("the entry %s is no PriorityClass in JSON: %w", name, err)
		}
		record[name] = class
	}
	return record, nil
}

// longestNumber is how many digits an annotation's number may have.
const longestNumber = 25

// CanToleratePreemption reports whether a pod is exempt from preemption by another, by its PriorityClass. It is the
// function that the KEP "Preemption Toleration" promises to other plugins. Whether the victim's priority is
// the lower one is not its question. A class whose annotations are no numbers exempts its pods: protect when in doubt.
// Of a class that is gone the record says what counts; one that is not on it tolerates nothing, unless the record has
// never been read. The error is of a lister that could not be read, and comes with true. O(1).
func CanToleratePreemption(victimCandidate, preemptor *v1.Pod, classes schedulinglisters.PriorityClassLister, record TolerationRecord, now time.Time) (bool, error) {
	name := victimCandidate.Spec.PriorityClassName
	if name == "" {
		return false, nil
	}
	class, err := classes.Get(name)
	if apierrors.IsNotFound(err) {
		class = nil
	} else if err != nil {
		return true, fmt.Errorf("PriorityClass %s of pod %s/%s: %w", name, victimCandidate.Namespace, victimCandidate.Name, err)
	}
	return ToleratesPreemption(victimCandidate, class, record, corev1helpers.PodPriority(preemptor), now), nil
}

// ToleratesPreemption is CanToleratePreemption for one who has the victim's PriorityClass: nil where it is gone. O(1).
func ToleratesPreemption(victim *v1.Pod, class *schedulingv1.PriorityClass, record TolerationRecord, preemptorPriority int32, now time.Time) bool {
	name := victim.Spec.PriorityClassName
	if name == "" {
		return false
	}
	if class == nil {
		class = record[name]
	}
	if class == nil {
		return record == nil
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

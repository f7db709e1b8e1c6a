package memory

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"makeway.dev/makeway/plugin/wire"
)

var (
	waiting     = wire.PodRef{Namespace: "default", Name: "waiting", UID: "waiting"}
	steadyClass = []wire.Dependency{{Kind: KindPriorityClass, Name: "steady"}}
)

func unschedulable(since time.Time, reason string) v1.PodCondition {
	return v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(since)}
}

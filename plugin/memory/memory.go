// Package memory is what earlier attempts of preemptors have left behind: who is tried again and when. On which nodes orders failed, for
// which victims, and whether orders are carried out at all, is the planner's to remember. It calls nothing of the scheduler: callers tell
// it what happened, and ask.
package memory

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// Memory is what earlier attempts of preemptors have left behind. Safe for concurrent use.
type Memory struct {
	Retries  *Retries
	Reverted *Reverted // nominations
	Delays   *Delays   // of PriorityClasses
}

// New makes one that is empty. find returns a pod as the informer has it, nil where it is gone.
func New(clock clock.PassiveClock, find func(wire.PodRef) *v1.Pod) *Memory {
	return &Memory{Retries: NewRetries(clock, find), Reverted: newReverted(), Delays: newDelays()}
}

// Forget drops what is known of a pod as a preemptor, or of a pod group: it is bound or gone.
func (m *Memory) Forget(uid types.UID) {
	m.Retries.forget(uid)
	m.Reverted.Forget(uid)
	m.Delays.forget(uid)
}

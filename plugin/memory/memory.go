// Package memory is what earlier attempts of preemptors have left behind: who is tried again and when. On which nodes orders failed, for
// which victims, and whether orders are carried out at all, is the planner's to remember. It calls nothing of the scheduler: callers tell
// it what happened, and ask.
package memory

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// Memory is what earlier attempts of preemptors have left behind. Safe for concurrent use.
type Memory struct {
	Retries *Retries
	Delays  Delays // of PriorityClasses
	// Reverted has the node of each preemptor, by UID, whose nomination was deleted in memory and may still be in the API: after an order
	// that was never stored, or that no evictor has taken back. The next cycle of the pod has the scheduler clear it there, by its own way
	// of writing. Bounded by the pods that are pending.
	Reverted sync.Map
}

// New makes one that is empty. find returns a pod as the informer has it, nil where it is gone.
func New(clock clock.PassiveClock, find func(wire.PodRef) *v1.Pod) *Memory {
	return &Memory{Retries: NewRetries(clock, find), Delays: newDelays()}
}

// Forget drops what is known of a pod as a preemptor, or of a pod group: it is bound or gone.
func (m *Memory) Forget(uid types.UID) {
	m.Retries.Forget(uid)
	m.Reverted.Delete(uid)
	m.Delays.Remove(uid)
}

package preempt

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// verifyShare: verification beyond the first candidates takes one part in so many of the scheduling thread's time.
const verifyShare = 5

// verifyBudget bounds what verification costs the scheduling thread for all pods together, beyond the few candidates that each try
// begins with: after so long it is shut for four times as long, so that over a minute it has at most a fifth, and one try. What
// finds a node at the first candidates is free, as it is what a preemption costs anyhow. Safe for concurrent use.
type verifyBudget struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	free time.Time // when what was spent has been paid for
}

func newVerifyBudget(clock clock.PassiveClock) *verifyBudget { return &verifyBudget{clock: clock} }

// opensAt is from when on verification may go beyond its first candidates.
func (b *verifyBudget) opensAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// isOpen reports whether verification may go beyond its first candidates.
func (b *verifyBudget) isOpen() bool { return !b.clock.Now().Before(b.opensAt()) }

// spent notes that a try has taken so long of the thread's time.
func (b *verifyBudget) spent(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.clock.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add((verifyShare - 1) * took)
}

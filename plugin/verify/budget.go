package verify

import (
	"sync"
	"time"
)

// share: verification beyond the first candidates takes one part in so many of the scheduling thread's time.
const share = 5

// Budget bounds what verification costs the scheduling thread for all pods together, beyond the few candidates that each try
// begins with: after so long it is shut for four times as long, so that over a minute it has at most a fifth, and one try. What
// finds a node at the first candidates is free, as it is what a preemption costs anyhow. Its zero value is open. Safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	free time.Time // when what was spent has been paid for
}

// OpensAt is from when on verification looks beyond its first candidates.
func (b *Budget) OpensAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// IsOpen reports whether verification looks beyond its first candidates.
func (b *Budget) IsOpen(now time.Time) bool { return !now.Before(b.OpensAt()) }

// Spent notes that a try has taken so long of the thread's time.
func (b *Budget) Spent(now time.Time, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add((share - 1) * took)
}

package verify

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How often a refusal's sample is verified, and for how long a pod whose refusal was wrong is tried in full.
const (
	sampleEvery = time.Minute
	fullFor     = 10 * time.Minute
)

// Samples guards the planner's refusals, which no filter of the scheduler has seen: now and then one of the nodes that
// its columns rule out is verified with everything removed that may be. Safe for concurrent use.
type Samples struct {
	mu     sync.Mutex
	next   time.Time
	inFull map[types.UID]time.Time // pods whose refusal was wrong, until when they are tried in full
}

func NewSamples() *Samples {
	return &Samples{inFull: map[types.UID]time.Time{}}
}

// Due reports whether a sample is to be verified now, and takes that turn.
func (s *Samples) Due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(sampleEvery)
	return true
}

// Missed notes that a pod was refused wrongly.
func (s *Samples) Missed(now time.Time, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFull[pod] = now.Add(fullFor)
}

// Full reports whether a pod is tried on every node that removing pods may help, whatever the columns say.
func (s *Samples) Full(now time.Time, pod types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.inFull[pod]
	if ok && !now.Before(until) {
		delete(s.inFull, pod)
		return false
	}
	return ok
}

func (s *Samples) Forget(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFull, pod)
}

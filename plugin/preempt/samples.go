package preempt

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// How often a refusal's sample is verified, and for how long a pod whose refusal was wrong is tried in full.
const (
	sampleEvery = time.Minute
	fullFor     = 10 * time.Minute
)

// Labels of makeway_scheduler_refusal_samples_total.
const (
	sampleConfirmed = "confirmed"
	sampleMissed    = "missed"
	sampleUndecided = "undecided"
)

// samples guards the planner's refusals, which no filter of the scheduler has seen: now and then one of the nodes that
// its columns rule out is verified with everything removed that may be. Safe for concurrent use.
type samples struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	next   time.Time
	inFull map[types.UID]time.Time // pods whose refusal was wrong, until when they are tried in full
}

func newSamples(clock clock.PassiveClock) *samples {
	return &samples{clock: clock, inFull: map[types.UID]time.Time{}}
}

// due reports whether a sample is to be verified now, and takes that turn.
func (s *samples) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(sampleEvery)
	return true
}

// missed notes that a pod was refused wrongly.
func (s *samples) missed(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFull[pod] = s.clock.Now().Add(fullFor)
}

// full reports whether a pod is tried on every node that removing pods may help, whatever the columns say.
func (s *samples) full(pod types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.inFull[pod]
	if ok && !s.clock.Now().Before(until) {
		delete(s.inFull, pod)
		return false
	}
	return ok
}

func (s *samples) forget(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inFull, pod)
}

// contradicts verifies the sample of a refusal, where its turn has come, and reports whether it shows the refusal to be wrong.
func (a *attempt) contradicts(ctx context.Context, reply *wire.PlanReply) bool {
	if reply.Sample == nil || a.full || !a.engine.samples.due() {
		return false
	}
	passed, why := a.verifier().check(ctx, *reply.Sample, true)
	result := sampleUndecided
	switch {
	case passed != nil:
		result = sampleMissed
	case why.cause == causeFilters || why.cause == causeTooMany:
		result = sampleConfirmed
	}
	refusalSamples.WithLabelValues(result).Inc()
	logger := klog.FromContext(ctx)
	if passed == nil {
		logger.V(2).Info("refusal_sampled", "pod", klog.KObj(a.pod), "node", reply.Sample.Node, "decision_id", reply.DecisionID, "result", result)
		return false
	}
	a.engine.samples.missed(a.pod.UID)
	logger.Error(nil, "refusal_missed", "pod", klog.KObj(a.pod), "pod_uid", a.pod.UID, "node", reply.Sample.Node, "victims", len(passed.victims),
		"request_id", reply.RequestID, "decision_id", reply.DecisionID, "planner", reply.Planner, "remedy", "report it with the output of: makeway replay "+reply.DecisionID)
	return true
}

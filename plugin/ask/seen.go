package ask

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// Resources whose versions a plan request tells, by the names that planners know them by.
const (
	ResourcePods            = "pods"
	ResourceNodes           = "nodes"
	ResourceBudgets         = "poddisruptionbudgets"
	ResourcePriorityClasses = "priorityclasses"
)

// Seen is how far the scheduler's informers have come, and how far it has read the outcomes of orders. A planner that has
// not come so far is behind, and what it refuses is not final. Only objects count, no bookmarks: a planner that follows the
// same objects has either seen one or is behind. Safe for concurrent use.
type Seen struct {
	mu       sync.Mutex
	versions map[string]int64
	outcomes atomic.Pointer[wire.StreamPosition]
}

func NewSeen() *Seen { return &Seen{versions: map[string]int64{}} }

// Take notes an object's version. A list comes in any order, so the highest counts.
func (s *Seen) Take(resource string, object metav1.Object) {
	version, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions[resource] = max(s.versions[resource], version)
}

// All are the versions by resource.
func (s *Seen) All() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.versions)
}

// TakeOutcome notes a message of the outcomes' stream. The last one counts, whatever its sequence: a stream that has lost its
// last messages, or was made anew, is read again.
func (s *Seen) TakeOutcome(r natsbus.Record) {
	s.outcomes.Store(&wire.StreamPosition{Created: r.Stream.Format(time.RFC3339Nano), Sequence: int64(r.Sequence)})
}

// Outcomes is how far the outcomes have been read; nil where there was none.
func (s *Seen) Outcomes() *wire.StreamPosition { return s.outcomes.Load() }

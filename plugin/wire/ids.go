package wire

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"sync"
	"time"
)

// PodRef is one incarnation of a pod or a PodGroup. Only UID identifies.
type PodRef struct{ Namespace, Name, UID string }

// crockford is the lower-case base 32 of ULIDs.
var crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// farOff is how far the clock has to be set for Steady to follow: ids are looked for by their times.
const farOff = time.Minute

// steadyTime is a clock by what passes. began: what it showed when nothing had passed.
type steadyTime struct {
	mu    sync.Mutex
	began time.Time
}

// at is its time where the wall clock shows another, so long after it began.
func (s *steadyTime) at(wall time.Time, passed time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.Add(passed).Sub(wall).Abs() > farOff {
		s.began = wall.Add(-passed)
	}
	return s.began.Add(passed)
}

var (
	started = time.Now()
	steady  = steadyTime{began: started.Round(0)}
)

// Steady is a time of this process's clock as if nothing had set that by less than a minute. By such times planners tell how long a
// question has waited, and how long it counts.
func Steady(t time.Time) time.Time { return steady.at(t.Round(0), t.Sub(started)) }

// NewOrderID makes an order id: "ord-" and 26 characters that sort by time and are random after
// the millisecond.
func NewOrderID(now time.Time) string { return "ord-" + newULID(now) }

// NewRequestID makes the id of one plan request.
func NewRequestID(now time.Time) string { return "req-" + newULID(now) }

// newULID makes 48 bits of milliseconds and 80 random bits, in base 32: ten characters that begin with two zero bits, and sixteen.
func newULID(now time.Time) string {
	milliseconds := binary.BigEndian.AppendUint64(nil, uint64(Steady(now).UnixMilli())<<14)
	random := make([]byte, 10)
	// crypto/rand.Read never fails; it ends the process where there is no randomness.
	_, _ = rand.Read(random)
	return crockford.EncodeToString(milliseconds)[:10] + crockford.EncodeToString(random)
}

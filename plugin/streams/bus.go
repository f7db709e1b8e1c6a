package streams

import (
	"context"
	"time"

	"makeway.dev/makeway/plugin/natsbus"
)

// Bus is what preempting needs of NATS: questions. A unit test that runs a whole preemption
// replaces these methods and those of Records. Their errors are natsbus's.
type Bus interface {
	// Request asks and waits for one answer, until the context ends. ErrNoResponders and ErrNotSent come at once.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Denied is what NATS denied within the last minute; empty where it denied nothing.
	Denied() string
	// Ask is Request for what no scheduling cycle waits for.
	Ask(ctx context.Context, subject string, data []byte) ([]byte, error)
}

// Records is the reading side: what the streams hold, and the numbers that stand in for those of a Lease.
type Records interface {
	// Last returns a subject's last message; found is false where there is none.
	Last(ctx context.Context, stream, subject string) (message natsbus.Record, found bool, err error)
	// Follow calls take for each message of a stream stored since a time, in order, and never returns
	// before the context ends.
	Follow(ctx context.Context, stream, subjects string, since time.Time, take func(natsbus.Record))
	// NextEpoch returns a number that is higher than any before for a key of a bucket.
	NextEpoch(ctx context.Context, bucket, key string) (int64, error)
}

var (
	_ Bus     = &natsbus.Bus{}
	_ Records = &natsbus.Bus{}
)

// Times of calls to NATS.
const (
	CallTimeout = 2 * time.Second // one call
	RetryDelay  = time.Second     // until the next, after one that failed
)

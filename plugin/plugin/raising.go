package plugin

import (
	"context"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/streams"
)

// raiseEpoch counts the start of a scheduler without a Lease: what an earlier one commits after it is refused.
func (e *engine) raiseEpoch(ctx context.Context) {
	for e.args.Lease.Name == "" && ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, streams.CallTimeout)
		_, err := e.leadership.Fence.Get(call, e.store.Subjects.EpochsBucket())
		cancel()
		if err == nil {
			return
		}
		goroutines.Sleep(ctx, streams.RetryDelay)
	}
}

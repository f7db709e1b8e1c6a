package preempt

import (
	"context"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/streams"
)

// keepKeys reads the keys again and again until the context ends.
func (e *engine) keepKeys(ctx context.Context) {
	for ctx.Err() == nil {
		goroutines.Sleep(ctx, streams.KeysPoll)
		e.readKeys(ctx)
	}
}

// awaitKeys reads the keys, and again for a while where signatures are required and there are none: what is read from the
// streams before counts for nothing.
func (e *engine) awaitKeys(ctx context.Context) {
	end := e.clock.Now().Add(streams.KeysWait)
	for e.readKeys(ctx); ctx.Err() == nil && e.store.Signatures.Incomplete() && e.clock.Now().Before(end); e.readKeys(ctx) {
		goroutines.Sleep(ctx, streams.KeysRetry)
	}
}

// readKeys takes keys that have changed, and a control state that could not be verified before.
func (e *engine) readKeys(ctx context.Context) {
	e.store.Signatures.Read(ctx)
	if waiting := e.store.Signatures.Refused.Swap(nil); waiting != nil {
		e.control.Take(ctx, *waiting)
	}
}

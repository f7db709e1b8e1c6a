package bridge

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
)

// recovered is deferred at every entry point and in every goroutine, so that no panic of the plugin can
// end the scheduler. It counts and logs the panic with its stack, then calls onPanic, where the
// caller sets what it returns.
func recovered(ctx context.Context, where string, onPanic func()) {
	reason := recover()
	if reason == nil {
		return
	}
	panicsTotal.WithLabelValues(where).Inc()
	klog.FromContext(ctx).Error(nil, "makeway_panic", "where", where, "reason", reason, "stack", string(debug.Stack()))
	if onPanic != nil {
		onPanic()
	}
}

// restartPause is how long a goroutine that panicked rests before it runs again.
const restartPause = time.Second

// keep runs a loop in a goroutine until it returns or the context ends. After a panic it runs again, after a pause: what
// it looks after would be left alone for the life of the process.
func keep(ctx context.Context, where string, run func(context.Context)) {
	go func() {
		for again := true; again && ctx.Err() == nil; {
			again = false
			func() {
				defer recovered(ctx, where, func() { again = true })
				run(ctx)
			}()
			if again {
				sleep(ctx, restartPause)
			}
		}
	}()
}

// spawn runs a function, once, in a goroutine that survives its panic.
func spawn(ctx context.Context, where string, run func(context.Context)) {
	go func() {
		defer recovered(ctx, where, nil)
		run(ctx)
	}()
}

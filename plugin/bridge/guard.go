package bridge

import (
	"context"
	"runtime/debug"

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

// spawn runs a function in a goroutine that survives its panic.
func spawn(ctx context.Context, where string, run func(context.Context)) {
	go func() {
		defer recovered(ctx, where, nil)
		run(ctx)
	}()
}

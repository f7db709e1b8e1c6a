// Package goroutines runs the plugin's code so that no panic of it ends the scheduler.
package goroutines

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/telemetry"
)

var panicsTotal = telemetry.CounterVec("makeway_scheduler_panics_total",
	"Panics recovered, by where: pre_enqueue, pre_filter, filter, add_pod, remove_pod, sign_pod, post_filter, plan_ahead, observe, reserve, unreserve, informer, commit, waker, gate, queue_conditions, retry, members, follow, control, brake, status.", "where")

// RecoverPanic is deferred at every entry point and in every goroutine, so that no panic of the plugin can
// end the scheduler. It counts and logs the panic with its stack, then calls onPanic, where the
// caller sets what it returns.
func RecoverPanic(ctx context.Context, where string, onPanic func()) {
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

// RestartPause is how long a goroutine that panicked rests before it runs again.
const RestartPause = time.Second

// KeepRunning runs a loop in a goroutine until it returns or the context ends. After a panic it runs again, after a
// pause: what it looks after would be left alone for the life of the process.
func KeepRunning(ctx context.Context, where string, run func(context.Context)) {
	go func() {
		for again := true; again && ctx.Err() == nil; {
			again = false
			func() {
				defer RecoverPanic(ctx, where, func() { again = true })
				run(ctx)
			}()
			if again {
				Sleep(ctx, RestartPause)
			}
		}
	}()
}

// GoRecovered runs a function, once, in a goroutine that survives its panic.
func GoRecovered(ctx context.Context, where string, run func(context.Context)) {
	go func() {
		defer RecoverPanic(ctx, where, nil)
		run(ctx)
	}()
}

// Sooner is the earlier of two times to wait for, of which zero is never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Wait waits until a time, for ever where that is zero, until something changes, or until the context ends.
func Wait(ctx context.Context, clock clock.Clock, until time.Time, changed <-chan struct{}) {
	select {
	case <-changed:
		return
	default: // only then is a timer needed
	}
	var timer <-chan time.Time
	if !until.IsZero() {
		timer = clock.After(max(until.Sub(clock.Now()), time.Millisecond))
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer:
	}
}

// Sleep waits, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

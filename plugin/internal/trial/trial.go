// Package trial marks runs of the scheduler's plugins that are no scheduling cycle.
package trial

import "context"

type key struct{}

// With marks what is run by a context as a trial.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// In reports whether a context is a trial's: plugins take nothing of it for a real cycle.
func In(ctx context.Context) bool { return ctx.Value(key{}) != nil }

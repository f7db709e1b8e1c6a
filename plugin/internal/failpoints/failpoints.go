// Package failpoints has named points between two side effects, at which a test may kill, freeze or hold the
// scheduler. They do something only in a binary built with the tag "failpoints" (on.go);
// otherwise a point is an empty function. The names are listed here, in the order in which an order
// passes them.
package failpoints

// The points, in the order in which an order passes them.
const (
	// Nominated: the pod is marked as preempting, PostFilter has not returned its node yet.
	Nominated = "scheduler.nominated"
	// BeforePublish: the planner has not been asked to store the order.
	BeforePublish = "scheduler.before-publish"
	// AfterPublish: the order is stored or void, and nothing has come of that yet.
	AfterPublish = "scheduler.after-publish"
	// AfterCommit: the order is known to be stored, its outcome is still to come.
	AfterCommit = "scheduler.after-commit"
	// OnOutcome: an outcome was read, the gate is still closed.
	OnOutcome = "scheduler.on-outcome"
	// BeforeActivate: the gate is open, the pod has not been moved to the active queue.
	BeforeActivate = "scheduler.before-activate"
)

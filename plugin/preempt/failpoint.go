package preempt

// Failpoints are named points between two side effects, at which a test may kill, freeze or hold the
// scheduler. They do something only in a binary built with the tag "failpoints" (failpoint_on.go);
// otherwise a point is an empty function. The names are listed here, in the order in which an order
// passes them.
const (
	// failNominated: the pod is marked as preempting, PostFilter has not returned its node yet.
	failNominated = "scheduler.nominated"
	// failBeforePublish: the nomination shows in the API, the order is not stored.
	failBeforePublish = "scheduler.before-publish"
	// failAfterPublish: the order is stored, and this process does not know it yet.
	failAfterPublish = "scheduler.after-publish"
	// failAfterCommit: the order is known to be stored, its outcome is still to come.
	failAfterCommit = "scheduler.after-commit"
	// failOnOutcome: an outcome was read, the gate is still closed.
	failOnOutcome = "scheduler.on-outcome"
	// failBeforeActivate: the gate is open, the pod has not been moved to the active queue.
	failBeforeActivate = "scheduler.before-activate"
)

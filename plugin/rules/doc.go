// Package rules decides which pods may not be victims of a preemption, whatever plugin preempts: what a
// PriorityClass tolerates (PreemptionToleration), what a policy of makeway protects, and which
// PodDisruptionBudgets are never violated; and how long a pod waits before it preempts (PreemptionDelay).
//
// It is public, for scheduler plugins that choose victims of their own, and depends on Kubernetes' API alone.
// The planner has the same rules in Python, in core/src/makeway/core; the cases of bus/testdata/rules hold both
// to one another.
package rules

package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxFailuresShown bounds the kinds of failures that a message counts.
const maxFailuresShown = 5

// Cause is why a node failed verification.
type Cause int

const (
	CauseFilters    Cause = iota + 1 // a filter rejects the pod whatever is removed
	CauseTooMany                     // the filters ask for more victims than the candidate may have
	CauseNothing                     // nothing that may be removed is there
	CauseNoNeed                      // the pod fits with all pods in their places
	CauseNodeGone                    // the scheduler's snapshot has no such node
	CauseAwaited                     // the plan counts on an order that removes nothing there
	CauseError                       // a plugin of the scheduler failed
	CauseExtender                    // an extender's filter rejects the node
	CauseUnfinished                  // the time for verification ended first; says nothing of the node
)

// Failure is a cause, with the filter plugin or extender that rejects the pod where it is that.
type Failure struct {
	Cause  Cause
	Plugin string
}

// causes describe the failure of a number of nodes, as kube-scheduler's messages do.
var causes = map[Cause]string{
	CauseFilters:    "failed the scheduler's filters with all removable pods gone",
	CauseTooMany:    "needed more victims than are allowed",
	CauseNothing:    "had no pod that may be removed now",
	CauseNoNeed:     "had room without a victim",
	CauseNodeGone:   "no longer existed",
	CauseAwaited:    "awaited pods that no order in flight removes",
	CauseError:      "met an error of a scheduler plugin",
	CauseExtender:   "were rejected by extender ",
	CauseUnfinished: "were not verified in time",
}

// String is the cause, with the plugin or extender.
func (f Failure) String() string {
	if f.Cause == CauseFilters && f.Plugin != "" {
		return "failed the scheduler's filters (" + f.Plugin + ") with all removable pods gone"
	}
	return causes[f.Cause] + f.Plugin
}

// Summary counts the nodes of each failure, the most frequent first.
func Summary(failed map[string]Failure) string {
	counts := map[Failure]int{}
	for _, f := range failed {
		counts[f]++
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b Failure) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Plugin, b.Plugin))
	})
	parts := make([]string, 0, maxFailuresShown+1)
	for i, kind := range kinds {
		if i == maxFailuresShown {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%d node(s) %s", counts[kind], kind))
	}
	return strings.Join(parts, ", ")
}

package verify

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Rank orders verified candidates, best first, by the rules of docs/ranking.md: those of kube-scheduler, lost work where the
// policy ranks by it, and two more, so that the same input leads to the same node. The planner ranks by the same ones; both are tested with the cases of
// bus/testdata/ranking.
//
// The pods that go are the new victims and those that another order already removes. A terminating pod costs nothing.
// `now` stands in for the start of a pod that has not started.
func Rank(candidates []*Candidate, now time.Time) {
	keys := make(map[*Candidate]rankKey, len(candidates))
	for _, c := range candidates {
		keys[c] = newRankKey(c, now)
	}
	slices.SortFunc(candidates, func(a, b *Candidate) int { return keys[a].compare(keys[b]) })
}

// rankKey holds the numbers of one candidate, in the order of the rules.
type rankKey struct {
	violations  int
	highest     int64
	lostWork    int64 // what the planner says that the new victims lose; 0 where the policy does not rank by it
	sum         int64
	count       int
	latestStart time.Time // the earliest among the pods of the highest priority: the later, the better
	new         int
	node        string
}

func newRankKey(c *Candidate, now time.Time) rankKey {
	key := rankKey{node: c.Node, highest: math.MinInt64, new: len(c.Victims)}
	count := func(pod *v1.Pod) {
		priority := int64(corev1helpers.PodPriority(pod))
		key.count++
		key.sum += priority + math.MaxInt32 + 1
		start := now
		if pod.Status.StartTime != nil {
			start = pod.Status.StartTime.Time
		}
		if priority > key.highest || (priority == key.highest && start.Before(key.latestStart)) {
			key.highest, key.latestStart = priority, start
		}
	}
	for _, victim := range c.Victims {
		count(victim.Pod)
		if victim.Violating {
			key.violations++
		}
		key.lostWork += victim.LostWork
	}
	for _, awaited := range c.Awaited {
		if awaited.Pod.DeletionTimestamp == nil {
			count(awaited.Pod)
		}
	}
	return key
}

func (k rankKey) compare(other rankKey) int {
	return cmp.Or(
		cmp.Compare(k.violations, other.violations),
		cmp.Compare(k.highest, other.highest),
		cmp.Compare(k.lostWork, other.lostWork),
		cmp.Compare(k.sum, other.sum),
		cmp.Compare(k.count, other.count),
		other.latestStart.Compare(k.latestStart),
		cmp.Compare(k.new, other.new),
		cmp.Compare(k.node, other.node),
	)
}

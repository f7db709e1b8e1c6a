package bridge

import (
	"math/rand"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

const (
	neg  int32 = -100
	low  int32 = 0
	mid  int32 = 100
	high int32 = 1000
)

// gone makes a pod of a priority that started at a second, for ranking.
func gone(priority int32, second int64) *v1.Pod {
	return st.MakePod().Priority(priority).StartTime(metav1.NewTime(time.Unix(second, 0))).Obj()
}

func option(node string, pods ...*v1.Pod) *verified {
	c := &verified{node: node}
	for _, pod := range pods {
		c.victims = append(c.victims, victim{pod: pod})
	}
	return c
}

func violating(c *verified) *verified {
	c.victims[0].violating = true
	return c
}

func TestRankingTakesEachRuleInItsTurn(t *testing.T) {
	for name, test := range map[string]struct {
		options []*verified
		want    string
	}{
		"a violation weighs more than a priority": {
			[]*verified{violating(option("n1", gone(neg, 1))), option("n2", gone(high, 1), gone(high, 1))}, "n2"},
		"lowest highest priority": {
			[]*verified{option("n1", gone(mid, 1), gone(mid, 1)), option("n2", gone(mid, 1), gone(low, 1)), option("n3", gone(low, 1), gone(low, 1))}, "n3"},
		"lowest sum": {
			[]*verified{option("n1", gone(mid, 1), gone(mid, 1)), option("n2", gone(mid, 1), gone(low, 1)), option("n3", gone(mid, 1), gone(mid, 1))}, "n2"},
		"a pod of negative priority makes no candidate better": {
			[]*verified{option("n1", gone(mid, 1), gone(neg, 1), gone(mid, 1), gone(neg, 1)), option("n2", gone(mid, 1), gone(neg, 1)), option("n3", gone(mid, 1), gone(neg, 1), gone(low, 1))}, "n2"},
		"latest start": {
			[]*verified{option("n1", gone(mid, 2), gone(mid, 2)), option("n2", gone(mid, 3), gone(mid, 3)), option("n3", gone(mid, 1), gone(mid, 1))}, "n2"},
		"the earliest of the highest priority counts": {
			[]*verified{option("n1", gone(mid, 4), gone(mid, 2)), option("n2", gone(mid, 5), gone(mid, 1)), option("n3", gone(mid, 3), gone(mid, 6))}, "n3"},
		"the node's name": {
			[]*verified{option("n2", gone(mid, 1)), option("n1", gone(mid, 1))}, "n1"},
		"a pod that has not started is the latest": {
			[]*verified{option("n1", gone(mid, 1)), option("n2", st.MakePod().Priority(mid).Obj())}, "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				rand.Shuffle(len(test.options), func(i, j int) { test.options[i], test.options[j] = test.options[j], test.options[i] })

				rank(test.options, time.Unix(100, 0))

				if got := test.options[0].node; got != test.want {
					t.Fatalf("best is %s, want %s", got, test.want)
				}
			}
		})
	}
}

func TestAwaitedPodsCountInRanking(t *testing.T) {
	awaits := option("n1", gone(low, 1))
	awaits.awaited = []awaitedPod{{pod: gone(mid, 1)}}
	options := []*verified{awaits, option("n2", gone(low, 1), gone(low, 1))}

	rank(options, time.Unix(100, 0))

	if options[0].node != "n2" {
		t.Error("the awaited pod of higher priority was not counted")
	}
}

package rules

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
)

// cases reads a table that the planner's rules are tested against too.
func cases[C any](t *testing.T, name string) []C {
	t.Helper()
	data, err := os.ReadFile("../testdata/rules/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var read []C
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	if len(read) == 0 {
		t.Fatalf("no cases of %s", name)
	}
	return read
}

func TestAPriorityClassExemptsItsPodsAsThePlannerSaysItDoes(t *testing.T) {
	type toleration struct {
		Name              string                      `json:"name"`
		Now               time.Time                   `json:"now"`
		PreemptorPriority int32                       `json:"preemptorPriority"`
		Victim            *v1.Pod                     `json:"victim"`
		PriorityClass     *schedulingv1.PriorityClass `json:"priorityClass"`
		Record            map[string]string           `json:"record"`
		Exempt            bool                        `json:"exempt"`
	}
	for _, c := range cases[toleration](t, "toleration") {
		t.Run(c.Name, func(t *testing.T) {
			var record TolerationRecord
			if c.Record != nil {
				var err error
				if record, err = ParseTolerationRecord(c.Record); err != nil {
					t.Fatal(err)
				}
			}
			if got := ToleratesPreemption(c.Victim, c.PriorityClass, record, c.PreemptorPriority, c.Now); got != c.Exempt {
				t.Errorf("exempt: %v, want %v", got, c.Exempt)
			}
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if c.PriorityClass != nil {
				if err := store.Add(c.PriorityClass); err != nil {
					t.Fatal(err)
				}
			}
			preemptor := &v1.Pod{Spec: v1.PodSpec{Priority: &c.PreemptorPriority}}
			got, err := CanToleratePreemption(c.Victim, preemptor, schedulinglisters.NewPriorityClassLister(store), record, c.Now)
			if err != nil || got != c.Exempt {
				t.Errorf("by its lister: %v, %v, want %v", got, err, c.Exempt)
			}
		})
	}
}

func TestAPolicyProtectsPodsAsThePlannerSaysItDoes(t *testing.T) {
	type protection struct {
		Name       string  `json:"name"`
		Victim     *v1.Pod `json:"victim"`
		Protection struct {
			Namespaces           []string `json:"namespaces"`
			MinimumPriority      *int32   `json:"minimumPriority"`
			NeverEvictNamespaces []string `json:"neverEvictNamespaces"`
		} `json:"protection"`
		Reason string `json:"reason"`
	}
	for _, c := range cases[protection](t, "protection") {
		t.Run(c.Name, func(t *testing.T) {
			policy := Protection{
				Namespaces:      NamespacesOf(c.Protection.Namespaces),
				MinimumPriority: c.Protection.MinimumPriority,
				NeverEvict:      NamespacesOf(c.Protection.NeverEvictNamespaces),
			}
			if got := policy.Protects(c.Victim); got != c.Reason {
				t.Errorf("reason %q, want %q", got, c.Reason)
			}
		})
	}
}

func TestABudgetCoversEveryPodThatThePlannerCountsInIt(t *testing.T) {
	type covering struct {
		Name                 string                          `json:"name"`
		HardBudgetNamespaces []string                        `json:"hardBudgetNamespaces"`
		Victim               *v1.Pod                         `json:"victim"`
		Budgets              []*policyv1.PodDisruptionBudget `json:"budgets"`
		Covered              bool                            `json:"covered"`
	}
	for _, c := range cases[covering](t, "budgets") {
		t.Run(c.Name, func(t *testing.T) {
			if got := BudgetsOf(c.Budgets, NamespacesOf(c.HardBudgetNamespaces)).Cover(c.Victim); got != c.Covered {
				t.Errorf("covered: %v, want %v", got, c.Covered)
			}
		})
	}
}

func TestAPriorityClassDelaysPreemptionAsThePlannerSaysItDoes(t *testing.T) {
	type delay struct {
		Name              string                      `json:"name"`
		PriorityClass     *schedulingv1.PriorityClass `json:"priorityClass"`
		Readable          bool                        `json:"readable"`
		DelayMilliseconds int64                       `json:"delayMilliseconds"`
	}
	for _, c := range cases[delay](t, "preemption-delay") {
		t.Run(c.Name, func(t *testing.T) {
			got, err := DelayOf(c.PriorityClass)
			if (err == nil) != c.Readable || got.Milliseconds() != c.DelayMilliseconds {
				t.Errorf("delay %v, error %v; want %d ms, readable: %v", got, err, c.DelayMilliseconds, c.Readable)
			}
		})
	}
}

func TestAPodIsUnschedulableSinceTheMomentThatThePlannerSays(t *testing.T) {
	type unschedulable struct {
		Name  string    `json:"name"`
		Now   time.Time `json:"now"`
		Pod   *v1.Pod   `json:"pod"`
		Since time.Time `json:"since"`
	}
	for _, c := range cases[unschedulable](t, "unschedulable-since") {
		t.Run(c.Name, func(t *testing.T) {
			if got := UnschedulableSince(c.Pod, c.Now); !got.Equal(c.Since) {
				t.Errorf("since %v, want %v", got, c.Since)
			}
		})
	}
}

func TestASystemCriticalPodGoesForAHigherPriorityOnly(t *testing.T) {
	for _, c := range []struct {
		victim, preemptor int32
		stays             bool
	}{
		{SystemCriticalPriority - 1, 0, false},
		{SystemCriticalPriority, SystemCriticalPriority, true},
		{SystemCriticalPriority, SystemCriticalPriority + 1, false},
		{SystemCriticalPriority + 1000, SystemCriticalPriority, true},
	} {
		if got := SystemCritical(&v1.Pod{Spec: v1.PodSpec{Priority: &c.victim}}, c.preemptor); got != c.stays {
			t.Errorf("victim %d, preemptor %d: stays %v, want %v", c.victim, c.preemptor, got, c.stays)
		}
	}
}

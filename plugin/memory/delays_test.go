package memory

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

func TestTheFirstFailureOfAPodThatWasHeldIsRemembered(t *testing.T) {
	now, d := time.Now(), newDelays()
	p := st.MakePod().UID("p").Obj()
	p.Status.Conditions = []v1.PodCondition{unschedulable(now.Add(-time.Hour), v1.PodReasonSchedulingGated)}

	first := d.Of(p, now)
	p.Status.Conditions = []v1.PodCondition{unschedulable(now.Add(-time.Hour), v1.PodReasonUnschedulable)}

	if second := d.Of(p, now.Add(time.Minute)); first != now || second != now {
		t.Errorf("since %v, then %v, want %v", first, second, now)
	}
}

func TestPodsBeyondTheBoundGoByTheirConditions(t *testing.T) {
	now, d := time.Now(), newDelays()
	for i := range maxRefused + 1 {
		d.Of(st.MakePod().UID(fmt.Sprint(i)).Obj(), now)
	}

	forgotten := st.MakePod().UID("0").Obj()
	forgotten.Status.Conditions = []v1.PodCondition{unschedulable(now.Add(-time.Hour), v1.PodReasonUnschedulable)}

	if since := d.Of(forgotten, now); d.Len() != maxRefused || now.Sub(since) != time.Hour {
		t.Errorf("%d remembered, since %v", d.Len(), since)
	}
}

func TestAPriorityClassDelaysPreemptionAsThePlannerSaysItDoes(t *testing.T) {
	type delay struct {
		Name              string                      `json:"name"`
		PriorityClass     *schedulingv1.PriorityClass `json:"priorityClass"`
		Readable          bool                        `json:"readable"`
		DelayMilliseconds int64                       `json:"delayMilliseconds"`
	}
	for _, c := range ruleCases[delay](t, "preemption-delay") {
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
	for _, c := range ruleCases[unschedulable](t, "unschedulable-since") {
		t.Run(c.Name, func(t *testing.T) {
			if got := unschedulableSince(c.Pod, c.Now); !got.Equal(c.Since) {
				t.Errorf("since %v, want %v", got, c.Since)
			}
		})
	}
}

// ruleCases reads a table that the planner's rules are tested against too.
func ruleCases[C any](t *testing.T, name string) []C {
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

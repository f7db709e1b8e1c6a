package verify

import (
	"encoding/json"
	"math/rand"
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rankingTable is what planner and plugin rank alike by.
type rankingTable struct {
	Rules []string      `json:"rules"`
	Cases []rankingCase `json:"cases"`
}

// rankingCase has candidates from the best to the worst, and the rule that decides between each two.
type rankingCase struct {
	Name       string `json:"name"`
	Candidates []struct {
		Node    string       `json:"node"`
		Victims []rankingPod `json:"victims"`
		Awaited []rankingPod `json:"awaited"`
	} `json:"candidates"`
	DecidedBy []string `json:"decidedBy"`
}

type rankingPod struct {
	Priority  int32        `json:"priority"`
	StartTime *metav1.Time `json:"startTime"`
	Violating bool         `json:"violating"`
	LostWork  int64        `json:"lostWork"`
}

func (p rankingPod) pod() *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Priority: &p.Priority}, Status: v1.PodStatus{StartTime: p.StartTime}}
}

func readRankingTable(t *testing.T) rankingTable {
	t.Helper()
	data, err := os.ReadFile("../testdata/ranking/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	table := rankingTable{}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) == 0 {
		t.Fatal("no cases")
	}
	return table
}

func TestCandidatesAreRankedAsThePlannerRanksThem(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range readRankingTable(t).Cases {
		t.Run(c.Name, func(t *testing.T) {
			var candidates []*Candidate
			var want []string
			for _, told := range c.Candidates {
				candidate := &Candidate{Node: told.Node}
				for _, pod := range told.Victims {
					candidate.Victims = append(candidate.Victims, Victim{Pod: pod.pod(), Violating: pod.Violating, LostWork: pod.LostWork})
				}
				for _, pod := range told.Awaited {
					candidate.Awaited = append(candidate.Awaited, Awaited{Pod: pod.pod()})
				}
				candidates = append(candidates, candidate)
				want = append(want, told.Node)
			}
			for range 10 {
				rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })

				Rank(candidates, now)

				var got []string
				for _, candidate := range candidates {
					got = append(got, candidate.Node)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("ranked %v, want %v", got, want)
				}
			}
		})
	}
}

func TestATerminatingPodCostsNothingInTheRanking(t *testing.T) {
	running := &Candidate{Node: "n2", Victims: []Victim{{Pod: pod("b", "n2", low, small).Obj()}}}
	awaiting := &Candidate{Node: "n1", Awaited: []Awaited{{Pod: leavingPod(pod("a", "n1", high, small).Obj(), time.Second)}}}
	candidates := []*Candidate{running, awaiting}

	Rank(candidates, time.Now())

	if candidates[0] != awaiting {
		t.Error("the running pod's node ranks first")
	}
}

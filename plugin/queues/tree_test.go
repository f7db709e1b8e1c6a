package queues

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"makeway.dev/makeway/plugin/wire"
)

// golden are the cases that hold the planner's side and this one to the same placement and the same counting.
type golden struct {
	Queues     []wire.QueueLimit
	Placements []struct {
		Name, Namespace, Queue string
		Labels                 map[string]string
	}
	Held []struct {
		Name, Namespace, Queue string
		Labels                 map[string]string
	}
	Requests []struct {
		Name    string
		Pod     v1.Pod
		Amounts map[string]int64
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	data, err := os.ReadFile("../testdata/queues/placement.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases golden
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func TestPodsArePlacedAsThePlannerPlacesThem(t *testing.T) {
	cases := readGolden(t)
	tree, err := newQueueTree(cases.Queues)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range cases.Placements {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Labels: test.Labels}}

		if got := tree.place(askedQueue(pod), test.Namespace).path; got != test.Queue {
			t.Errorf("%s: placed in %s, want %s", test.Name, got, test.Queue)
		}
	}
}

func TestPodsThatNoQueueTakesAreHeldAsThePlannerHoldsThem(t *testing.T) {
	cases := readGolden(t)
	tree, err := newQueueTree(append(cases.Queues, wire.QueueLimit{Path: unplacedQueue, Max: map[string]int64{"pods": 0}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range cases.Held {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Labels: test.Labels}}

		if got := tree.place(askedQueue(pod), test.Namespace).path; got != test.Queue {
			t.Errorf("%s: placed in %s, want %s", test.Name, got, test.Queue)
		}
	}
}

func TestRequestsCountAsThePlannerCountsThem(t *testing.T) {
	for _, test := range readGolden(t).Requests {
		got := map[string]int64{}
		for _, a := range requestsOf(&test.Pod) {
			got[a.resource] = a.value
		}

		if !maps.Equal(got, test.Amounts) {
			t.Errorf("%s: %v, want %v", test.Name, got, test.Amounts)
		}
	}
}

func TestATreeWithoutADefaultQueueGetsAnUnlimitedOne(t *testing.T) {
	tree := treeOf(t, limit("root", "cpu", 1000))

	q := tree.place("root.nowhere", "x")

	if q.path != defaultQueue || q.max[tree.index["cpu"]] != unlimited || q.line[1].path != rootQueue {
		t.Errorf("placed in %+v", q)
	}
}

func TestAListThatIsNoTreeIsRefused(t *testing.T) {
	for wrong, limits := range map[string][]wire.QueueLimit{
		"comes before":    {limit("root"), limit("root.a.b"), limit("root.a")},
		"queue other":     {limit("other")},
		"comes twice":     {limit("root"), limit("root.a"), limit("root.a")},
		"queues below it": {limit("root"), limit("root.default"), limit("root.default.a")},
	} {
		if _, err := newQueueTree(limits); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: error %v, want %q", limits, err, wrong)
		}
	}
}

// limit is a queue with at most so much of one resource.
func limit(path string, of ...any) wire.QueueLimit {
	l := wire.QueueLimit{Path: path, Max: map[string]int64{}}
	for i := 0; i+1 < len(of); i += 2 {
		l.Max[of[i].(string)] = int64(of[i+1].(int))
	}
	return l
}

func treeOf(t testing.TB, limits ...wire.QueueLimit) *queueTree {
	t.Helper()
	tree, err := newQueueTree(limits)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

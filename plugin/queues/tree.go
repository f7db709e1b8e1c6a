package queues

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

const (
	rootQueue    = "root"
	defaultQueue = "root.default"
	// unplacedQueue is where pods count that no queue takes, where these are held: its max is no pod.
	unplacedQueue = "root.@unplaced"
	// unlimited stands where a queue has no max of a resource.
	unlimited = int64(math.MaxInt64)
	// mostOfOnePod bounds what one pod counts for, so that sums cannot overflow: 256 TiB, or as many
	// thousandths of a core.
	mostOfOnePod = int64(1) << 48
)

// queueLabels are where a pod names its queue; the first that is not empty counts.
var queueLabels = [...]string{"yunikorn.apache.org/queue", "queue"}

// QueueLabels are the labels by which a pod names its queue.
func QueueLabels() []string { return slices.Clone(queueLabels[:]) }

// queueTree is the tree of queues of one control state: what each may hold, and who may use
// it. It never changes. Resources that no queue limits are in none of its numbers.
type queueTree struct {
	queues   []*queue // parents before children
	byPath   map[string]*queue
	fallback *queue
	unplaced *queue              // nil: pods that no queue takes count in fallback
	named    map[string]struct{} // namespaces that a queue lists, or a queue below root is called after
	index    map[string]int      // of the resources that a queue limits
	names    []string            // of the resources, by index, sorted
}

// queue is one queue of a tree.
type queue struct {
	path       string
	number     int
	line       []*queue // itself and its ancestors, itself first
	leaf       bool
	namespaces []string // that may use it; empty: all
	max        []int64  // by resource's index
}

// depth is 0 for the root.
func (q *queue) depth() int { return len(q.line) - 1 }

// holds reports whether another queue is this one or below it. O(1).
func (q *queue) holds(other *queue) bool {
	up := other.depth() - q.depth()
	return up >= 0 && other.line[up] == q
}

// amount is so much of a resource, in milli-CPU, bytes or units.
type amount struct {
	resource string
	value    int64
}

// need is so much of a resource that a queue of the tree limits.
type need struct {
	index int
	value int64
}

// newQueueTree builds the tree of a control state. root.default is added where it is missing: open to
// all, without limits of its own.
func newQueueTree(limits []wire.QueueLimit) (*queueTree, error) {
	tree := &queueTree{byPath: make(map[string]*queue, len(limits)+1), index: map[string]int{}, named: map[string]struct{}{}}
	for _, limit := range limits {
		tree.names = slices.AppendSeq(tree.names, maps.Keys(limit.Max))
	}
	slices.Sort(tree.names)
	tree.names = slices.Compact(tree.names)
	for i, name := range tree.names {
		tree.index[name] = i
	}
	for _, limit := range limits {
		if err := tree.enter(limit); err != nil {
			return nil, err
		}
	}
	if tree.byPath[defaultQueue] == nil {
		if err := tree.enter(wire.QueueLimit{Path: defaultQueue}); err != nil {
			return nil, err
		}
	}
	tree.fallback, tree.unplaced = tree.byPath[defaultQueue], tree.byPath[unplacedQueue]
	if !tree.fallback.leaf {
		return nil, fmt.Errorf("queue %s has queues below it", defaultQueue)
	}
	return tree, nil
}

func (t *queueTree) enter(limit wire.QueueLimit) error {
	if t.byPath[limit.Path] != nil {
		return fmt.Errorf("queue %s comes twice", limit.Path)
	}
	q := &queue{path: limit.Path, number: len(t.queues), leaf: true, namespaces: limit.Namespaces, max: make([]int64, len(t.names))}
	q.line = []*queue{q}
	if limit.Path != rootQueue {
		above := t.byPath[limit.Path[:max(strings.LastIndexByte(limit.Path, '.'), 0)]]
		if above == nil {
			return fmt.Errorf("queue %s comes before the queue above it", limit.Path)
		}
		above.leaf = false
		q.line = append(q.line, above.line...)
	}
	for i, name := range t.names {
		q.max[i] = unlimited
		if most, limited := limit.Max[name]; limited {
			q.max[i] = most
		}
	}
	if q.depth() == 1 && q.path != defaultQueue && q.path != unplacedQueue {
		t.named[strings.TrimPrefix(q.path, rootQueue+".")] = struct{}{}
	}
	for _, namespace := range q.namespaces {
		t.named[namespace] = struct{}{}
	}
	t.queues = append(t.queues, q)
	t.byPath[q.path] = q
	return nil
}

// place finds the leaf that a pod counts in, by the queue that its labels name and its namespace. The
// planner places alike; bus/testdata/queues holds both to it. O(1).
func (t *queueTree) place(asked, namespace string) *queue {
	path := asked
	if asked == "" {
		path = rootQueue + "." + namespace
	}
	if q := t.byPath[path]; q != nil && q.leaf && t.mayUse(q, namespace) {
		return q
	}
	if t.unplaced == nil || asked == "" && t.mayUse(t.fallback, namespace) {
		return t.fallback
	}
	return t.unplaced
}

// mayUse reports whether a namespace may use a queue. Where pods that no queue takes are held, a namespace that the tree
// names has its queues: an open one is none of them, unless it is root.<namespace> or below.
func (t *queueTree) mayUse(q *queue, namespace string) bool {
	if len(q.namespaces) > 0 {
		return slices.Contains(q.namespaces, namespace)
	}
	if _, named := t.named[namespace]; t.unplaced == nil || !named {
		return true
	}
	own := rootQueue + "." + namespace
	return q.path == own || strings.HasPrefix(q.path, own+".")
}

// needs are the amounts that count in this tree.
func (t *queueTree) needs(amounts []amount) []need {
	needs := make([]need, 0, len(amounts))
	for _, a := range amounts {
		if i, limited := t.index[a.resource]; limited {
			needs = append(needs, need{index: i, value: a.value})
		}
	}
	return needs
}

// askedQueue is the queue that a pod's labels name, empty where they name none.
func askedQueue(pod *v1.Pod) string {
	for _, label := range queueLabels {
		if path := pod.Labels[label]; path != "" {
			return path
		}
	}
	return ""
}

// requestsOf is what a pod asks of a node as kube-scheduler counts it in NodeInfo, with what an in-place resize has allocated.
// Zero amounts are left out; the rest come by name.
func requestsOf(pod *v1.Pod) []amount {
	asked := (&framework.PodInfo{Pod: pod}).CalculateResource().Resource
	values := map[v1.ResourceName]int64{
		v1.ResourcePods: 1, v1.ResourceCPU: asked.GetMilliCPU(), v1.ResourceMemory: asked.GetMemory(), v1.ResourceEphemeralStorage: asked.GetEphemeralStorage(),
	}
	maps.Copy(values, asked.GetScalarResources())
	amounts := make([]amount, 0, len(values))
	for name, value := range values {
		if value > 0 {
			amounts = append(amounts, amount{resource: string(name), value: min(value, mostOfOnePod)})
		}
	}
	slices.SortFunc(amounts, func(a, b amount) int { return strings.Compare(a.resource, b.resource) })
	return amounts
}

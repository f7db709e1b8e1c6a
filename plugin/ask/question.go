package ask

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// Question is what a cycle asks the planner: so many candidates for a pod among some nodes, under a mode.
type Question struct {
	Pod        *v1.Pod
	Mode       string
	Nodes      Potential
	Candidates int
	Full       bool // set the columns aside
}

// same reports whether the question is another one over again. O(names of nodes).
func (q Question) same(other Question) bool {
	return q.Pod == other.Pod && q.Mode == other.Mode && q.Candidates == other.Candidates && q.Full == other.Full && q.Nodes.equal(other.Nodes)
}

// View is what a scheduler knows that the API server does not, or not yet. The sets are complete, since another planner may answer the
// next question.
type View struct {
	ClusterUID   string
	Nominations  []wire.Placement
	Assumed      []wire.Placement
	Seen         map[string]int64     // how far its informers have come, by resource
	OutcomesRead *wire.StreamPosition // nil where it has read none
}

// How is how one question is asked.
type How struct {
	Now        time.Time
	Timeout    time.Duration
	Profile    wire.Profile
	Prefetched bool // while the filters run
}

// Request builds the message, of the pod with what the planner reads. O(nodes + nominations).
func (q Question) Request(by How, known View) (*wire.PlanRequest, error) {
	raw, err := wire.Encode(project(q.Pod))
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	return &wire.PlanRequest{
		APIVersion:          wire.APIVersion,
		RequestID:           wire.NewRequestID(by.Now),
		ClusterUID:          known.ClusterUID,
		Mode:                q.Mode,
		TimeoutMilliseconds: by.Timeout.Milliseconds(),
		MaxCandidates:       int64(q.Candidates),
		Profile:             by.Profile,
		Pod:                 raw,
		Nodes:               q.Nodes.Nodes,
		Nominations:         known.Nominations,
		Assumed:             known.Assumed,
		Seen:                known.Seen,
		Ahead:               by.Prefetched,
		IgnoreColumns:       q.Full,
		OutcomesRead:        known.OutcomesRead,
	}, nil
}

// GroupQuestion is what a cycle asks the planner for a pod group.
type GroupQuestion struct {
	Group     minor.Group
	Priority  int32
	MustPlace int
	Mode      string
	Classes   []*Class
	LeftOut   sets.Set[string]   // nodes to leave out
	Nodes     fwk.NodeInfoLister // of the cycle
}

// Request builds the message. Nominations are without those of the group's members, which a plan replaces.
// O(nodes + nominations + members).
func (q GroupQuestion) Request(by How, known View) (*wire.GroupPlanRequest, error) {
	request := &wire.GroupPlanRequest{
		APIVersion:          wire.APIVersion,
		RequestID:           wire.NewRequestID(by.Now),
		ClusterUID:          known.ClusterUID,
		Mode:                q.Mode,
		TimeoutMilliseconds: by.Timeout.Milliseconds(),
		Profile:             by.Profile,
		Group: wire.GroupPreemptor{
			Namespace: q.Group.Namespace, Name: q.Group.Name, UID: string(q.Group.UID), Priority: q.Priority,
		},
		MustPlace:    int64(q.MustPlace),
		Topology:     q.Group.Topology,
		Seen:         known.Seen,
		OutcomesRead: known.OutcomesRead,
	}
	for _, class := range q.Classes {
		raw, err := wire.Encode(project(class.Pods[0]))
		if err != nil {
			return nil, fmt.Errorf("encode member: %w", err)
		}
		nodes := class.Potential.Without(q.LeftOut, q.Nodes).Nodes
		asked := wire.MemberClass{Pod: raw, Count: int64(len(class.Pods)), Nodes: nodes}
		if at := slices.IndexFunc(request.Classes, func(other wire.MemberClass) bool {
			return other.SameNodesAs == nil && len(nodes.Names) > 0 && other.Nodes.AllBut == nodes.AllBut && slices.Equal(other.Nodes.Names, nodes.Names)
		}); at >= 0 {
			same := int64(at)
			asked.Nodes, asked.SameNodesAs = wire.NodeSelection{}, &same
		}
		request.Classes = append(request.Classes, asked)
	}
	for _, pod := range q.Group.Placed {
		request.Placed = append(request.Placed, wire.Placement{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName})
	}
	slices.SortFunc(request.Placed, func(a, b wire.Placement) int { return strings.Compare(a.UID, b.UID) })
	members := make(map[string]bool, len(q.Group.Waiting))
	for _, pod := range q.Group.Waiting {
		members[string(pod.UID)] = true
	}
	isMember := func(place wire.Placement) bool { return members[place.UID] }
	request.Nominations = slices.DeleteFunc(known.Nominations, isMember)
	request.Assumed = slices.DeleteFunc(known.Assumed, isMember)
	return request, nil
}

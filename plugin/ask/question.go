package ask

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// Question is what a cycle asks the planner, under a mode: about a pod, which is one class of one, or about a pod group.
type Question struct {
	Mode       string
	Classes    []*Class
	Candidates int          // for a pod: so many nodes
	Full       bool         // set the columns aside
	Group      *minor.Group // nil for a pod
	Priority   int32        // of the group
	MustPlace  int          // so many of its members
}

// One is the class of a pod by itself, among some nodes.
func One(pod *v1.Pod, nodes Potential) []*Class {
	return []*Class{{Pods: []*v1.Pod{pod}, Potential: nodes}}
}

// same reports whether the question about a pod is another one over again. O(names of nodes).
func (q Question) same(other Question) bool {
	one, another := q.Classes[0], other.Classes[0]
	return one.Pods[0] == another.Pods[0] && q.Mode == other.Mode && q.Candidates == other.Candidates && q.Full == other.Full && one.Potential.equal(another.Potential)
}

// Of the pieces in which the planner is asked for candidates: each is so much larger than the one before, up to the most.
const (
	pieceGrowth = 8
	mostInPiece = 1024
)

// NextPiece is how many candidates are asked for where none of so many stood. `most`: so many are asked for at first, at the most.
func NextPiece(piece, most int) int {
	if piece < most {
		return most
	}
	return min(piece*pieceGrowth, max(most, mostInPiece))
}

// Request completes the message that has what the scheduler knows and how it asks, with the pods as the planner reads them. Nominations are
// without those of the pods that are asked about, which a plan replaces. O(nodes + nominations + members).
func (q Question) Request(known wire.PlanRequest) (*wire.PlanRequest, error) {
	request := &known
	request.APIVersion, request.Mode, request.IgnoreColumns = wire.APIVersion, q.Mode, q.Full
	request.MaxCandidates, request.MustPlace = int64(q.Candidates), int64(q.MustPlace)
	asked := sets.New[string]()
	for _, class := range q.Classes {
		raw, err := wire.Encode(project(class.Pods[0]))
		if err != nil {
			return nil, fmt.Errorf("encode pod: %w", err)
		}
		nodes := class.Potential.Nodes
		of := wire.MemberClass{Pod: raw, Count: int64(len(class.Pods)), Nodes: nodes}
		if at := slices.IndexFunc(request.Classes, func(other wire.MemberClass) bool {
			return other.SameNodesAs == nil && len(nodes.Names) > 0 && other.Nodes.AllBut == nodes.AllBut && slices.Equal(other.Nodes.Names, nodes.Names)
		}); at >= 0 {
			same := int64(at)
			of.Nodes, of.SameNodesAs = wire.NodeSelection{}, &same
		}
		request.Classes = append(request.Classes, of)
		for _, pod := range class.Pods {
			asked.Insert(string(pod.UID))
		}
	}
	if group := q.Group; group != nil {
		request.Group = &wire.GroupPreemptor{Namespace: group.Namespace, Name: group.Name, UID: string(group.UID), Priority: q.Priority}
		request.Topology = group.Topology
		for _, pod := range group.Placed {
			request.Placed = append(request.Placed, wire.Placement{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName})
		}
		slices.SortFunc(request.Placed, func(a, b wire.Placement) int { return strings.Compare(a.UID, b.UID) })
	}
	isAsked := func(place wire.Placement) bool { return asked.Has(place.UID) }
	request.Nominations = slices.DeleteFunc(request.Nominations, isAsked)
	request.Assumed = slices.DeleteFunc(request.Assumed, isAsked)
	return request, nil
}

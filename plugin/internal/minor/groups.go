package minor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
)

// Group is a pod group that the scheduler could not place, as the snapshot of its cycle has it.
type Group struct {
	Namespace, Name string
	UID             types.UID
	MinCount        int       // of its gang; 0: it is none
	Topology        []string  // keys of node labels within whose one value all members must be
	NeverPreempts   bool      // by its own preemptionPolicy where that counts, else by those of its pods that wait
	Composite       bool      // it is a tree of groups; of that nothing but the names and Waiting is told
	Waiting         []*v1.Pod // in the order in which the scheduler places them
	Placed          []*v1.Pod // members that are assumed or bound
}

// GroupCycle is a scheduling cycle in which a group could not be placed.
type GroupCycle interface {
	Group() Group
	// State is what plugins keep for the cycle: that of StateOfGroup for each member.
	State() GroupState
	// Filters runs the PreFilter plugins for one member, on the snapshot as it is, and returns the state that Filter plugins ask.
	// nodes is nil where no PreFilter plugin narrows them. A status other than success is why no node passes.
	Filters(ctx context.Context, member *v1.Pod) (state fwk.CycleState, nodes sets.Set[string], status *fwk.Status)
	// Begin starts to change the snapshot. Nothing else may, and none of its nodes may be kept, until End.
	Begin() (GroupTrial, error)
}

// GroupState is what plugins keep for the cycle of a group.
type GroupState interface {
	Read(key fwk.StateKey) (fwk.StateData, error)
	Write(key fwk.StateKey, kept fwk.StateData)
}

// GroupTrial is the cycle's snapshot while it is changed.
type GroupTrial interface {
	Nodes() fwk.NodeInfoLister
	Remove(ctx context.Context, pod *v1.Pod, node string) error
	Add(pod fwk.PodInfo, node string) error
	// Place runs the scheduler's own algorithm for the group once, with all that it does for each member up to Reserve, and takes
	// back what that has reserved.
	Place(ctx context.Context) ([]Assignment, *fwk.Status)
	// Assume has a member be on its node, with what plugins reserve for it, until Forget.
	Assume(ctx context.Context, member Assignment) *fwk.Status
	Forget(ctx context.Context, member Assignment) error
	// End takes all changes back.
	End() error
}

// Assignment is a member with the node that the scheduler's algorithm gave it. State knows the members that were placed before.
type Assignment struct {
	Pod   *v1.Pod
	Info  fwk.PodInfo
	Node  string
	State fwk.CycleState
}

// PreemptForGroup makes room for a group. With Success it returns the nodes that members are nominated to.
type PreemptForGroup func(ctx context.Context, cycle GroupCycle) (map[types.NamespacedName]string, *fwk.Status)

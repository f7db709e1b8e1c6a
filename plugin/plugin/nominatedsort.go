package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
)

// NominatedSortName is the name of NominatedSort in the registry and in configurations.
const NominatedSortName = "NominatedSort"

// NominatedSort orders the scheduling queue as PrioritySort does, but for this: of pods of the same priority
// those nominated to a node go first. Room has been made for them, or is reserved.
//
// PrioritySort puts a pod that comes back behind all that have not been tried yet. Where many preemptors come
// together the room made for the first stays empty until the last has preempted, and each cycle has to count
// with every nomination until then, on a copy of its node. It may stand in place of PrioritySort, in every
// profile; MakeWay does not depend on it.
//
// A pod's nomination changes by an update of the pod, after which the queue puts it into its place anew.
type NominatedSort struct{}

var _ fwk.QueueSortPlugin = NominatedSort{}

// NewNominatedSort makes the plugin of one profile; it has no arguments.
func NewNominatedSort(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return NominatedSort{}, nil
}

// Name implements Plugin.
func (NominatedSort) Name() string { return NominatedSortName }

// Less reports whether a pod is tried before another; a pod group that is queued as one is nominated nowhere. It runs under the queue's lock.
func (NominatedSort) Less(one, other minor.Queued) bool {
	if mine, theirs := minor.PriorityOf(one), minor.PriorityOf(other); mine != theirs {
		return mine > theirs
	}
	if mine, theirs := nominated(minor.PodOf(one)), nominated(minor.PodOf(other)); mine != theirs {
		return mine
	}
	return one.GetTimestamp().Before(other.GetTimestamp())
}

func nominated(pod *v1.Pod) bool { return pod != nil && pod.Status.NominatedNodeName != "" }

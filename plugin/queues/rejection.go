package queues

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// rejectionKey is where a cycle's state keeps why the gate keeps its pod out: nil where the pod passed in PreFilter.
const rejectionKey fwk.StateKey = "PreFilterMakeWay"

// Why the gate rejects a pod; labels of a metric.
const (
	rejectedFull    = "queue_full"       // no eviction within the full queue could make room
	rejectedMayHelp = "victims_may_help" // pods of lower priority in it hold enough
	rejectedUnknown = "limits_unknown"
)

// Rejection is why a pod is kept out of its queue; the room in each queue that it would enter, its own first; and how that changes when pods are removed in a dry run. A cycle whose pod passed the gate has none: then nothing
// but removing would follow, and that makes room only.
type Rejection struct {
	gate    *Gate
	reason  string
	message string

	rooms   []room // nil where the limits are not known
	removed map[types.UID]*demand
}

// RejectionOf is that of a cycle whose pod is kept out, nil where it passed. checked: Check was called in the cycle.
func RejectionOf(state fwk.CycleState) (rejected *Rejection, checked bool) {
	data, err := state.Read(rejectionKey)
	if err != nil {
		return nil, false
	}
	rejected, checked = data.(*Rejection)
	return rejected, checked
}

// Check reports why a pod is kept out in its cycle, which notes it; nil where it passes. A pod that is kept out waits
// in line. O(depth × resources); where there are no queues it is one read.
func (g *Gate) Check(state fwk.CycleState, pod *v1.Pod, profileMode string) *Rejection {
	rejected := g.check(pod, profileMode)
	rejected.count()
	state.Write(rejectionKey, rejected)
	return rejected
}

// CheckLate is RejectionOf, and Check in a cycle in which that was not called: a plugin before this one has rejected
// the pod.
func (g *Gate) CheckLate(state fwk.CycleState, pod *v1.Pod, profileMode string) *Rejection {
	if rejected, checked := RejectionOf(state); checked {
		return rejected
	}
	return g.Check(state, pod, profileMode)
}

// count has a metric count a rejection, where it is one.
func (r *Rejection) count() {
	if r != nil {
		gateRejections.WithLabelValues(r.reason).Inc()
	}
}

// Message says for people what is short, nearest queue first, or what is not known.
func (r *Rejection) Message() string { return r.message }

// VictimsMayHelp reports whether pods within the full queue may make room.
func (r *Rejection) VictimsMayHelp() bool { return r.reason == rejectedMayHelp }

// Status is the rejection as the scheduler takes it.
func (r *Rejection) Status() *fwk.Status {
	code := fwk.UnschedulableAndUnresolvable
	if r.VictimsMayHelp() {
		code = fwk.Unschedulable
	}
	return fwk.NewStatus(code, r.message)
}

// Clone implements StateData.
func (r *Rejection) Clone() fwk.StateData {
	if r == nil {
		return r
	}
	clone := *r
	clone.rooms, clone.removed = slices.Clone(r.rooms), maps.Clone(r.removed)
	return &clone
}

// Fits reports whether there is room in every queue.
func (r *Rejection) Fits() bool {
	return !slices.ContainsFunc(r.rooms, func(one room) bool { return !one.isEnough() })
}

// RemovePod takes a pod out in a dry run. One that does not count, or counts in another subtree, makes no room.
func (r *Rejection) RemovePod(uid types.UID) {
	m := r.gate.held(uid)
	if m == nil || r.removed[uid] != nil {
		return
	}
	if r.removed == nil {
		r.removed = map[types.UID]*demand{}
	}
	r.removed[uid] = m
	r.shift(m, -1)
}

// AddPod puts a pod back that was taken out in a dry run. Others that the scheduler adds, such as pods nominated to
// the node, count already where they hold a place, and nowhere where they do not.
func (r *Rejection) AddPod(uid types.UID) {
	m := r.removed[uid]
	if m == nil {
		return
	}
	delete(r.removed, uid)
	r.shift(m, 1)
}

func (r *Rejection) shift(m *demand, sign int64) {
	for i := range r.rooms {
		one := &r.rooms[i]
		one.used += sign * m.in(one.queue, one.index)
	}
}

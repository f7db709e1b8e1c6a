package bridge

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/goroutines"
)

// roomKey is where a cycle's state keeps the room in the pod's queues.
const roomKey fwk.StateKey = "PreFilter" + Name

// passedKey is in a cycle's state where the pod passed the gate in PreFilter.
const passedKey fwk.StateKey = "PreFilterPassed" + Name

// passedGate is the mark under passedKey.
type passedGate struct{}

// Clone implements StateData.
func (p passedGate) Clone() fwk.StateData { return p }

// errGatePanic lets a pod be tried again after a back-off: neither past the gate nor shut out.
var errGatePanic = errors.New("makeway: a panic was recovered in the queue gate, see the scheduler's log")

// roomState is the room in each queue that a pod which is kept out would enter, itself first in line, and
// how that changes when pods are removed on trial. Nil in a cycle whose pod passed the gate: then nothing
// but removing would follow, and that makes room only.
type roomState struct {
	gate    *queueGate
	needs   []need
	line    []*queue
	free    [][]int64 // by queue of the line and need; unlimited where there is no max
	removed map[types.UID]*member
	message string
	mayHelp bool
}

// Clone implements StateData.
func (s *roomState) Clone() fwk.StateData {
	clone := *s
	clone.free = make([][]int64, len(s.free))
	for i, free := range s.free {
		clone.free[i] = append([]int64(nil), free...)
	}
	clone.removed = make(map[types.UID]*member, len(s.removed))
	for uid, m := range s.removed {
		clone.removed[uid] = m
	}
	return &clone
}

// fits says whether there is room in every queue.
func (s *roomState) fits() bool {
	for _, free := range s.free {
		for j, n := range s.needs {
			if free[j] != unlimited && n.value > free[j] {
				return false
			}
		}
	}
	return true
}

// remove takes a pod out on trial. One that does not count, or counts in another subtree, makes no room.
func (s *roomState) remove(uid types.UID) {
	m := s.gate.memberAt(uid)
	if m == nil || s.removed[uid] != nil {
		return
	}
	if s.removed == nil {
		s.removed = map[types.UID]*member{}
	}
	s.removed[uid] = m
	s.shift(m, 1)
}

// add puts a pod back that was taken out on trial. Others that the scheduler adds, such as pods nominated to
// the node, count already where they hold a place, and nowhere where they do not.
func (s *roomState) add(uid types.UID) {
	m := s.removed[uid]
	if m == nil {
		return
	}
	delete(s.removed, uid)
	s.shift(m, -1)
}

func (s *roomState) shift(m *member, sign int64) {
	for i, q := range s.line {
		if !q.holds(m.leaf) {
			continue
		}
		for j, n := range s.needs {
			for _, held := range m.needs {
				if held.index == n.index && s.free[i][j] != unlimited {
					s.free[i][j] += sign * held.value
				}
			}
		}
	}
}

// PreFilter keeps a pod out whose queue, or one above it, has no room. Unschedulable where pods within the
// full queue may make room, so that PostFilter asks for a plan; else UnschedulableAndUnresolvable. Skip
// where the pod may pass, so that nothing else here costs anything in its cycle.
func (pl *MakeWay) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (_ *fwk.PreFilterResult, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "pre_filter", func() { status = fwk.AsStatus(errGatePanic) })
	gate := pl.engine.gate
	pl.engine.leadership.leads.Store(true)
	if gate.holds(pl.args.Mode, corev1helpers.PodPriority(pod), pod.Namespace) {
		gate.awaitDecision(ctx)
	}
	rejected := gate.look(pod, pl.args.Mode)
	if rejected == nil {
		state.Write(passedKey, passedGate{})
		pl.askAhead(state, pod)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	pl.keepOut(state, rejected)
	return nil, rejected.status()
}

// keepOut notes in a cycle's state that the gate rejects its pod.
func (pl *MakeWay) keepOut(state fwk.CycleState, rejected *rejection) {
	gateRejections.WithLabelValues(rejected.reason).Inc()
	room := rejected.room
	if room == nil {
		room = &roomState{gate: pl.engine.gate}
	}
	room.message, room.mayHelp = rejected.message, rejected.reason == rejectedMayHelp
	state.Write(roomKey, room)
}

// lookLate asks the gate in PostFilter about a pod that a plugin before this one rejected in PreFilter, so that
// PreFilter was not called here. It returns the room as roomOf does.
func (pl *MakeWay) lookLate(state fwk.CycleState, pod *v1.Pod) *roomState {
	if state == nil {
		return nil
	}
	if _, err := state.Read(passedKey); err == nil {
		return nil
	}
	if rejected := pl.engine.gate.look(pod, pl.args.Mode); rejected != nil {
		pl.keepOut(state, rejected)
	}
	return roomOf(state)
}

// awaitDecision lets the first cycle of a process wait until it is known whether there are limits: see
// runControl, which decides in less than that. A standby knows before it leads.
func (g *queueGate) awaitDecision(ctx context.Context) {
	select {
	case <-g.decided:
		return
	default:
	}
	timer := time.NewTimer(decisionWait)
	defer timer.Stop()
	select {
	case <-g.decided:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// status is the rejection as the scheduler takes it.
func (r *rejection) status() *fwk.Status {
	code := fwk.UnschedulableAndUnresolvable
	if r.reason == rejectedMayHelp {
		code = fwk.Unschedulable
	}
	return fwk.NewStatus(code, r.message)
}

// PreFilterExtensions implements PreFilterPlugin.
func (pl *MakeWay) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// RemovePod lets a removal on trial free quota.
func (pl *MakeWay) RemovePod(ctx context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "remove_pod", func() { status = fwk.AsStatus(errGatePanic) })
	if room := roomOf(state); room != nil {
		room.remove(removed.GetPod().UID)
	}
	return nil
}

// AddPod takes that back.
func (pl *MakeWay) AddPod(ctx context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "add_pod", func() { status = fwk.AsStatus(errGatePanic) })
	if room := roomOf(state); room != nil {
		room.add(added.GetPod().UID)
	}
	return nil
}

// Filter says on trial whether the removed pods have made room. In an ordinary cycle it is never asked: a
// pod that passes the gate skips it, and one that is kept out has no node looked at.
func (pl *MakeWay) Filter(ctx context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.NodeInfo) (status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "filter", func() { status = fwk.AsStatus(errGatePanic) })
	room := roomOf(state)
	if room == nil || room.fits() {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, room.message)
}

// SignPod lets the scheduler go on reusing results for like pods: without it batching ends for the whole
// profile. PreFilter is asked for every pod, batched or not; pods of different queues are told apart all
// the same, since the gate may answer differently for them. It runs under the scheduling queue's lock.
func (pl *MakeWay) SignPod(ctx context.Context, pod *v1.Pod) (fragments []fwk.SignFragment, status *fwk.Status) {
	defer goroutines.RecoverPanic(ctx, "sign_pod", func() { fragments, status = nil, fwk.NewStatus(fwk.Unschedulable) })
	tree := pl.engine.gate.tree.Load()
	if tree == nil {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name + ".queue", Value: tree.place(askedQueue(pod), pod.Namespace).path}}, nil
}

// roomOf is the room of a cycle whose pod is kept out, nil where it passed.
func roomOf(state fwk.CycleState) *roomState { return dataOf[*roomState](state, roomKey) }

// dataOf is what a cycle's state keeps under a key, the zero value where it keeps nothing.
func dataOf[T fwk.StateData](state fwk.CycleState, key fwk.StateKey) (data T) {
	if state == nil {
		return data
	}
	kept, err := state.Read(key)
	if err != nil {
		return data
	}
	data, _ = kept.(T)
	return data
}

// gatePause is the least time between two looks at the waiting pods.
const gatePause = 50 * time.Millisecond

// runGate activates pods that were kept out and now fit. Between two looks it pauses, so that a queue
// that empties is looked at a few times and not once a pod.
func (e *engine) runGate(ctx context.Context) {
	for ctx.Err() == nil {
		e.openFor(ctx)
		goroutines.Sleep(ctx, gatePause)
	}
}

// openFor looks once, waits where nothing is due, and activates.
func (e *engine) openFor(ctx context.Context) {
	defer goroutines.RecoverPanic(ctx, "gate", nil)
	leads := e.leadership.now(ctx)
	refs, next := e.gate.due(leads)
	if at := e.clock.Now().Add(leadsAgain); !leads && (next.IsZero() || at.Before(next)) {
		next = at
	}
	waiting, shut := e.gate.state()
	gateWaiting.Set(float64(waiting))
	gateShut.Set(shut)
	if len(refs) > 0 {
		gateWoken.Add(float64(len(refs)))
		pods := make(map[string]*v1.Pod, len(refs))
		for _, ref := range refs {
			if pod := e.pending(ref); pod != nil {
				pods[ref.Namespace+"/"+ref.Name] = pod
			}
		}
		logger := klog.FromContext(ctx)
		logger.V(2).Info("queue_gate_opened", "pods", len(refs), "waiting", waiting)
		e.handle.Activate(logger, pods)
		return
	}
	var timer <-chan time.Time
	if !next.IsZero() {
		timer = e.clock.After(max(next.Sub(e.clock.Now()), time.Millisecond))
	}
	select {
	case <-ctx.Done():
	case <-e.gate.changed:
	case <-timer:
	}
}

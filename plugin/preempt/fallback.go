package preempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	kjson "sigs.k8s.io/json"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
)

// FallbackName is the name of the fallback in the registry and in configurations.
const FallbackName = "MakeWayFallback"

// MakeWayFallback is kube-scheduler's DefaultPreemption under the policy: what it may not evict is decided by the
// rules that the planner keeps to, as far as this process knows them, and what it cannot judge is exempt. Else it
// acts, waits and answers as DefaultPreemption. It stands in DefaultPreemption's place, after MakeWay, and acts where
// MakeWay has no plan.
//
// For whole pod groups kube-scheduler's preemption asks no rule when it chooses victims, so that it acts for them only where no
// policy protects anything; see groups_fallback.go. In versions before 1.37 pods of a group preempt one by one.
type MakeWayFallback struct {
	minor.GroupFallback
	upstream *defaultpreemption.DefaultPreemption
	handle   fwk.Handle
	engineOf func() *engine // nil where no profile has MakeWay
}

// fellBack notes how a pod's cycle ended after the fallback: a pod that it made room for holds its place in its queue until
// it is reserved, or loses its nomination, so that no other comes in its stead and has pods evicted too.
func (e *engine) fellBack(pod *v1.Pod, result *fwk.PostFilterResult, status *fwk.Status) {
	switch {
	case status.IsSuccess() && result != nil && result.NominatedNodeName != "":
		e.reservations.add(pod.UID)
		e.gate.ReserveQuota(orders.RefOf(pod))
	case result != nil:
		e.endReservation(pod.UID)
		e.gate.CycleFailed(pod.UID)
	default:
		e.gate.CycleFailed(pod.UID)
	}
	e.pending(orders.RefOf(pod)) // it may have gone meanwhile
}

// endReservation ends what fellBack began, where it did.
func (e *engine) endReservation(uid types.UID) {
	if e.reservations.drop(uid) {
		e.gate.ReleaseQuota(uid)
	}
}

// heldReservations are the pods that the fallback made room for and whose places are held. Safe for concurrent use.
type heldReservations struct {
	mu   sync.Mutex
	pods map[types.UID]struct{}
}

func newHeldReservations() *heldReservations {
	return &heldReservations{pods: map[types.UID]struct{}{}}
}

func (h *heldReservations) add(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[uid] = struct{}{}
}

// drop reports whether the pod's place was held.
func (h *heldReservations) drop(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, held := h.pods[uid]
	delete(h.pods, uid)
	return held
}

// recentVictims are the pods that the fallbacks of all profiles chose as victims a moment ago: their deletion may not show
// yet. Safe for concurrent use.
type recentVictims struct {
	mu   sync.Mutex
	pods map[types.UID]time.Time
}

func newRecentVictims() *recentVictims { return &recentVictims{pods: map[types.UID]time.Time{}} }

// recentFor is how long a chosen victim is taken to be leaving where it does not show. After that its deletion
// has failed.
const recentFor = time.Minute

var (
	_ fwk.PostFilterPlugin  = &MakeWayFallback{}
	_ fwk.PreEnqueuePlugin  = &MakeWayFallback{}
	_ fwk.EnqueueExtensions = &MakeWayFallback{}
)

// MakeWayFallbackArgs are the fallback's arguments, those of DefaultPreemption. A field that is left out has
// the default named here.
type MakeWayFallbackArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MinCandidateNodesPercentage is how many candidates to look for at least, in percent of the nodes.
	// From 0 to 100. Default 10.
	MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage,omitempty"`

	// MinCandidateNodesAbsolute is how many candidates to look for at least. Default 100.
	MinCandidateNodesAbsolute *int32 `json:"minCandidateNodesAbsolute,omitempty"`
}

// decodeFallbackArgs reads and defaults the arguments. DefaultPreemption checks them.
func decodeFallbackArgs(object runtime.Object) (*config.DefaultPreemptionArgs, error) {
	raw, err := rawArgs(object)
	if err != nil {
		return nil, fmt.Errorf("%sArgs: %w", FallbackName, err)
	}
	var args MakeWayFallbackArgs
	if len(raw) > 0 {
		unknown, err := kjson.UnmarshalStrict(raw, &args)
		if err = errors.Join(append(unknown, err)...); err != nil {
			return nil, fmt.Errorf("%sArgs: %w", FallbackName, err)
		}
	}
	if kind := FallbackName + "Args"; args.Kind != "" && args.Kind != kind {
		return nil, fmt.Errorf("%s: kind: %q: %s, or left out", kind, args.Kind, kind)
	}
	percentage, absolute := int32(10), int32(100)
	return &config.DefaultPreemptionArgs{
		MinCandidateNodesPercentage: *cmp.Or(args.MinCandidateNodesPercentage, &percentage),
		MinCandidateNodesAbsolute:   *cmp.Or(args.MinCandidateNodesAbsolute, &absolute),
	}, nil
}

// NewFallback makes the plugin of one profile. The framework makes plugins in no certain order, so MakeWay's engine
// is looked for when a pod needs it.
func NewFallback(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return newFallback(ctx, object, handle, func() *engine { return engineOf(handle) })
}

func newFallback(ctx context.Context, object runtime.Object, handle fwk.Handle, engineOf func() *engine) (*MakeWayFallback, error) {
	registerMetrics()
	args, err := decodeFallbackArgs(object)
	if err != nil {
		return nil, err
	}
	pl := &MakeWayFallback{handle: handle, engineOf: engineOf}
	if pl.upstream, err = minor.NewDefaultPreemption(ctx, FallbackName, args, handle, &exactHandle{Handle: handle}, selectAmongFree); err != nil {
		return nil, fmt.Errorf("%sArgs: %w", FallbackName, err)
	}
	minor.GuardDeletes(pl.upstream, pl.guardDelete)
	pl.GroupFallback = minor.NewGroupFallback(handle, pl.upstream, pl.holdGroup)
	return pl, nil
}

// Name implements Plugin.
func (pl *MakeWayFallback) Name() string { return FallbackName }

// PreEnqueue holds a pod whose victims are being deleted.
func (pl *MakeWayFallback) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	return pl.upstream.PreEnqueue(ctx, pod)
}

// EventsToRegister implements EnqueueExtensions.
func (pl *MakeWayFallback) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	return pl.upstream.EventsToRegister(ctx)
}

// PostFilter preempts as DefaultPreemption does, among the pods that the rules let go.
func (pl *MakeWayFallback) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (result *fwk.PostFilterResult, status *fwk.Status) {
	outcome := fallbackHeld
	defer func() { fallbackTotal.WithLabelValues(outcome).Inc() }()
	defer goroutines.RecoverPanic(ctx, "fallback", func() {
		result, status = nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: the fallback: a panic was recovered, see the scheduler's log")
	})
	if engine := pl.engineOf(); engine != nil {
		defer func() { engine.fellBack(pod, result, status) }()
	}
	guard := pl.victimGuardFor(pod, nil)
	if guard.hold == "" {
		guard.hold = pl.pauses(pod)
	}
	if guard.hold != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: the fallback evicts nothing: "+guard.hold)
	}
	result, status = pl.upstream.PostFilter(context.WithValue(ctx, victimGuardKey{}, guard), state, pod, statuses)
	outcome = fallbackRefused
	engine := pl.engineOf()
	if len(guard.backedOffNodes) > 0 && !status.IsSuccess() {
		_, until := engine.nodeBackoff.nodes(pod.UID)
		engine.retry.postpone(orders.RefOf(pod), until)
	}
	if status.IsSuccess() && result != nil {
		outcome = fallbackNominated
		engine.recentVictims.add(guard.victimsOn(result.NominatedNodeName), guard.now)
	}
	return result, status
}

// pauses is why nothing is evicted for a pod now, after room was made for it again and again; empty where some may be. The
// pod is tried again when its pause is over.
func (pl *MakeWayFallback) pauses(pod *v1.Pod) string {
	engine := pl.engineOf()
	if engine == nil {
		return ""
	}
	until, times := engine.nodeBackoff.pausedUntil(pod.UID)
	if times == 0 {
		return ""
	}
	engine.retry.postpone(orders.RefOf(pod), until)
	return fmt.Sprintf("room was made for this pod %d times, and it was not bound; the next try is at %s", times, until.UTC().Format(time.RFC3339))
}

// victimGuardFor is what holds for one preemptor in this cycle.
func (pl *MakeWayFallback) victimGuardFor(preemptor *v1.Pod, own map[types.UID]bool) *victimGuard {
	engine := pl.engineOf()
	if engine == nil {
		return &victimGuard{hold: "no profile of this scheduler has the plugin " + Name}
	}
	return engine.victimGuardFor(preemptor, pl.upstream.Evaluator.PdbLister, own)
}

// add notes victims that were just chosen.
func (c *recentVictims) add(victims []*v1.Pod, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, victim := range victims {
		c.pods[victim.UID] = now
	}
}

// leaving are the victims that were chosen a moment ago.
func (c *recentVictims) leaving(now time.Time) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	uids := make([]types.UID, 0, len(c.pods))
	for uid, at := range c.pods {
		if now.Sub(at) > recentFor {
			delete(c.pods, uid)
			continue
		}
		uids = append(uids, uid)
	}
	return uids
}

// guardDelete asks the rules about all victims of a preemptor once more before each is deleted: scheduler extenders
// may have put in others, and the policy may have changed. Where one may not go, none goes, since the others would go in
// vain: that is an error, with which kube-scheduler tries the preemptor again.
func (pl *MakeWayFallback) guardDelete(ctx context.Context, eviction minor.Eviction, evict func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	victim := eviction.Victim
	if pl.current(victim) == nil {
		logger.Info("fallback_victim_gone", "pod", klog.KObj(victim), "pod_uid", victim.UID)
		return nil
	}
	kept, tooMany, err := pl.judge(eviction)
	if err != nil {
		return err
	}
	for pod, reason := range kept {
		fallbackExempt.WithLabelValues(reason).Inc()
		logger.Info("fallback_victim_spared", "pod", klog.KObj(pod), "pod_uid", pod.UID, "reason", reason)
	}
	if len(kept) > 0 || tooMany != "" {
		for _, pod := range eviction.Preemptors {
			pl.backOffNode(pod, eviction.Node)
		}
		if tooMany != "" {
			return fmt.Errorf("on node %s %s, so none goes", eviction.Node, tooMany)
		}
		return fmt.Errorf("%d of the %d pods to evict on node %s may not go, so none goes", len(kept), len(eviction.Victims), eviction.Node)
	}
	if engine := pl.engineOf(); engine != nil && victim.UID == eviction.Victims[0].UID {
		for _, pod := range eviction.Preemptors {
			engine.nodeBackoff.fellBack(pod.UID)
			engine.pending(orders.RefOf(pod)) // it may have gone meanwhile
		}
	}
	err = evict(context.WithValue(ctx, victimKey{}, victim.UID))
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		// For example an admission policy forbids it, and would the next time. A conflict is over at once.
		for _, pod := range eviction.Preemptors {
			pl.backOffNode(pod, eviction.Node)
		}
	}
	return err
}

// judge returns those of a preemptor's victims that may not go, with the rule that keeps each, and why they are too many,
// where they are. Victims that are gone or leaving are not asked about. O(victims · log victims), besides victimGuardFor.
func (pl *MakeWayFallback) judge(eviction minor.Eviction) (kept map[*v1.Pod]string, tooMany string, err error) {
	if len(eviction.Preemptors) == 0 {
		return nil, "", fmt.Errorf("the preemptor of pods on node %s has no pod", eviction.Node)
	}
	victims := eviction.Victims
	staying := make([]*v1.Pod, 0, len(victims))
	own := map[types.UID]bool{}
	for _, victim := range victims {
		if current := pl.current(victim); current != nil && current.DeletionTimestamp == nil {
			staying = append(staying, current)
			own[current.UID] = true
		}
	}
	guard := pl.victimGuardFor(eviction.Preemptors[0], own)
	return guard.split(staying, minor.MoreImportantPod(pl.upstream)), guard.tooMany(staying), nil
}

// current is a pod as the informer has it, nil where it is gone or another has its name.
func (pl *MakeWayFallback) current(pod *v1.Pod) *v1.Pod {
	current, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || current.UID != pod.UID {
		return nil
	}
	return current
}

// backOffNode lets a preemptor's next tries be others: kube-scheduler activates it at once where victims stay.
func (pl *MakeWayFallback) backOffNode(preemptor *v1.Pod, node string) {
	engine := pl.engineOf()
	if engine == nil {
		return
	}
	if backedOff, _ := engine.nodeBackoff.nodes(preemptor.UID); !backedOff[node] { // not once for each victim
		engine.nodeBackoff.failed(preemptor.UID, node)
	}
	engine.pending(orders.RefOf(preemptor)) // it may have gone meanwhile
}

// selectAmongFree is DefaultPreemption's choice of victims among those that the cycle's guard lets go. Nodes are looked at in parallel.
func selectAmongFree(ctx context.Context, node fwk.NodeInfo, moreImportant func(a, b *v1.Pod) bool, choose func(goes func(*v1.Pod) bool) ([]*v1.Pod, int, *fwk.Status)) ([]*v1.Pod, int, *fwk.Status) {
	guard, ok := ctx.Value(victimGuardKey{}).(*victimGuard)
	if !ok {
		return nil, 0, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "makeway: nothing is known of what may be evicted")
	}
	name := node.Node().Name
	if guard.backedOffNodes[name] {
		return nil, 0, fwk.NewStatus(fwk.Unschedulable, "makeway: preemption has just failed on this node")
	}
	free, kept := guard.partition(node, moreImportant)
	victims, violations, status := choose(func(pod *v1.Pod) bool {
		_, goes := free[pod.UID]
		return goes
	})
	if !status.IsSuccess() {
		if kept != "" && status.Code() != fwk.Error {
			status = fwk.NewStatus(status.Code(), append(status.Reasons(), "makeway keeps pods of lower priority: "+kept)...)
		}
		return victims, violations, status
	}
	if tooMany := guard.tooMany(victims); tooMany != "" {
		return nil, 0, fwk.NewStatus(fwk.Unschedulable, "makeway: "+tooMany)
	}
	guard.selected.Store(name, victims)
	return victims, violations, status
}

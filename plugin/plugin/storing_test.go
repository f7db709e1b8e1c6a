package plugin

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// storing is the planner's side of commits, as far as the plugin can see it: it waits for the nominations, and for orders that are counted on,
// and stores an order of what it is asked for, or a void of it.
type storing struct {
	bus    *fakeBus
	engine *engine
	sign   func(data []byte, subject string) []byte
	ahead  time.Duration // its clock, of the scheduler's
}

func (s storing) commit(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
	order := s.named(commit)
	subject := s.engine.store.Subjects.Order(order.Kind, order.PreemptorUID())
	if reply := s.stored(commit, subject); reply != nil {
		return reply, nil
	}
	waiting, cancel := context.WithDeadline(ctx, commit.StoreBy.Time)
	defer cancel()
	for _, place := range commit.Placements {
		shown, err := s.awaitNomination(waiting, place)
		if err != nil {
			return nil, err
		}
		if !shown {
			gone := voidPreemptorGone
			if commit.Group != nil {
				gone = "member-gone"
			}
			return s.void(order, subject, commit, gone), nil
		}
	}
	if preemptor := s.pod(commit.Placements[0].UID); preemptor != nil {
		s.clearing(order, commit, corev1helpers.PodPriority(preemptor))
	}
	for _, uid := range commit.Victims {
		victim := s.pod(uid)
		if victim == nil {
			continue
		}
		order.Victims = append(order.Victims, wire.Victim{
			Namespace: victim.Namespace, Name: victim.Name, UID: uid, Node: victim.Spec.NodeName, Priority: corev1helpers.PodPriority(victim), Rule: "lower-priority",
			GracePeriodSeconds: 30,
		})
	}
	for _, a := range commit.Awaited {
		kept, failed := s.awaits(ctx, a)
		if failed {
			return s.void(order, subject, commit, "awaited-order-failed"), nil
		}
		if kept {
			order.Awaited = append(order.Awaited, a)
		}
	}
	countsOn := slices.ContainsFunc(order.Awaited, func(a wire.Awaited) bool { return a.OrderID != "" })
	if len(order.Victims)+len(order.NominationsToClear) == 0 && !countsOn {
		return s.void(order, subject, commit, voidNothing), nil
	}
	return s.store(order, subject, commit), nil
}

// named is an order of a commit's names, without pods to evict.
func (s storing) named(commit *wire.CommitRequest) *wire.EvictionOrder {
	now := time.Now().Add(s.ahead)
	order := &wire.EvictionOrder{
		OrderID: commit.OrderID, Kind: wire.KindPod, ClusterUID: commit.ClusterUID, Fence: commit.Fence, Writer: commit.Bridge, DecisionID: "dec-1",
		CreatedAt: wire.At(now), NotAfter: wire.At(now.Add(time.Duration(commit.LastsSeconds) * time.Second)), StoreBy: &commit.StoreBy,
	}
	if commit.Group != nil {
		order.Kind, order.Group, order.Members = wire.KindGroup, commit.Group, commit.Placements
		return order
	}
	place := commit.Placements[0]
	order.Preemptor = &wire.Preemptor{Namespace: place.Namespace, Name: place.Name, UID: place.UID, SchedulerName: "default-scheduler"}
	if preemptor := s.pod(place.UID); preemptor != nil {
		order.Preemptor.Priority = corev1helpers.PodPriority(preemptor)
	}
	order.Node, order.NodeUID = place.Node, place.NodeUID
	return order
}

// awaitNomination waits until a pod shows nominated as planned; false where it is gone or bound.
func (s storing) awaitNomination(ctx context.Context, place wire.Placement) (shown bool, err error) {
	uid := types.UID(place.UID)
	for ctx.Err() == nil {
		nominated, _ := s.engine.placements.Lists(nil)
		isPlace := func(one wire.Placement) bool { return one.UID == place.UID && one.Node == place.Node }
		switch pod := s.pod(place.UID); {
		case !s.engine.placements.Knows(uid), pod != nil && pod.Spec.NodeName != "":
			return false, nil
		case slices.ContainsFunc(nominated, isPlace):
			return true, nil
		}
		goroutines.Sleep(ctx, time.Millisecond)
	}
	return false, ctx.Err()
}

// clearing names the pods of lower priority that are nominated to the nodes.
func (s storing) clearing(order *wire.EvictionOrder, commit *wire.CommitRequest, priority int32) {
	seen := map[string]bool{}
	for _, place := range commit.Placements {
		if seen[place.Node] {
			continue
		}
		seen[place.Node] = true
		for _, info := range s.engine.handle.NominatedPodsForNode(place.Node) {
			other := s.engine.podOf(orders.RefOf(info.GetPod()))
			if other.Spec.Priority == nil || corev1helpers.PodPriority(other) >= priority {
				continue
			}
			one := wire.NominationToClear{Namespace: other.Namespace, Name: other.Name, UID: string(other.UID)}
			if commit.Group != nil {
				one.Node = place.Node
			}
			order.NominationsToClear = append(order.NominationsToClear, one)
		}
	}
	slices.SortFunc(order.NominationsToClear, func(a, b wire.NominationToClear) int { return strings.Compare(a.UID, b.UID) })
}

// awaits reports whether a pod is still to be waited for, once the order that removes it is stored, and whether that came to nothing.
func (s storing) awaits(ctx context.Context, a wire.Awaited) (kept, failed bool) {
	for ctx.Err() == nil {
		s.bus.mu.Lock()
		_, stored := s.bus.ids[a.OrderID]
		s.bus.mu.Unlock()
		victim := s.pod(a.UID)
		switch {
		case a.OrderID == "" || stored:
			return true, false
		case victim == nil || victim.Spec.NodeName == "":
			return false, false
		case !s.engine.inflight.HasOrder(a.OrderID):
			return false, true
		}
		goroutines.Sleep(ctx, time.Millisecond)
	}
	return false, true
}

func (s storing) pod(uid string) *v1.Pod {
	all, _ := s.engine.cluster.pods.List(labels.Everything())
	for _, pod := range all {
		if string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}

// store stores an order or a void of it behind the message that the commit names.
func (s storing) store(order *wire.EvictionOrder, subject string, commit *wire.CommitRequest) *wire.CommitReply {
	data, err := wrapOrder(order, order.Writer)
	if err != nil {
		return &wire.CommitReply{Void: &wire.Void{Reason: voidNotTaken, Message: err.Error()}}
	}
	if s.sign != nil {
		data = s.sign(data, subject)
	}
	s.bus.mu.Lock()
	last, _ := s.bus.last(subject)
	if last.Sequence != uint64(commit.After) {
		s.bus.mu.Unlock()
		return s.stored(commit, subject)
	}
	s.bus.ids[order.OrderID] = s.bus.store(subject, data)
	s.bus.mu.Unlock()
	if order.Void != nil {
		return &wire.CommitReply{Void: order.Void}
	}
	return &wire.CommitReply{Order: order}
}

func (s storing) void(order *wire.EvictionOrder, subject string, commit *wire.CommitRequest, reason string) *wire.CommitReply {
	order.Victims, order.Awaited, order.NominationsToClear, order.Members, order.Void = nil, nil, nil, nil, &wire.Void{Reason: reason, Message: "in a test"}
	return s.store(order, subject, commit)
}

// stored is the answer that the first message behind the one that the commit names is; nil where there is none.
func (s storing) stored(commit *wire.CommitRequest, subject string) *wire.CommitReply {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	for _, r := range s.bus.messages {
		if r.Subject != subject || r.Sequence <= uint64(commit.After) {
			continue
		}
		order := &wire.EvictionOrder{}
		_, err := wire.Unwrap(r.Data, wire.TypeOrder, order)
		switch {
		case err != nil:
		case order.OrderID != commit.OrderID:
			return &wire.CommitReply{Void: &wire.Void{Reason: voidSuperseded, Message: order.OrderID}}
		case order.Void != nil:
			return &wire.CommitReply{Void: order.Void}
		default:
			return &wire.CommitReply{Order: order}
		}
	}
	return nil
}

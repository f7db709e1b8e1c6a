package preempt

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// storing is the planner's side of commits, as far as the plugin can see it: it waits for the nomination, and for orders that are counted on,
// and stores an order of what it is asked for, or a void of it.
type storing struct {
	bus    *fakeBus
	engine *engine
	sign   func(envelope *wire.Envelope, subject string)
}

func (s storing) commit(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
	uid := types.UID(commit.Preemptor.UID)
	subject := s.engine.store.Subjects.PodOrder(commit.Preemptor.UID)
	if reply := s.stored(commit, subject); reply != nil {
		return reply, nil
	}
	now := time.Now()
	order := &wire.EvictionOrder{
		OrderID: commit.OrderID, Kind: wire.KindPod, ClusterUID: commit.ClusterUID, Fence: commit.Fence, Writer: commit.Bridge, DecisionID: "dec-1",
		CreatedAt: wire.At(now), NotAfter: wire.At(now.Add(time.Duration(commit.LastsSeconds) * time.Second)), StoreBy: &commit.StoreBy,
		Preemptor: &wire.Preemptor{Namespace: commit.Preemptor.Namespace, Name: commit.Preemptor.Name, UID: commit.Preemptor.UID, SchedulerName: "default-scheduler"},
		Node:      commit.Node, NodeUID: commit.NodeUID,
	}
	waiting, cancel := context.WithDeadline(ctx, commit.StoreBy.Time)
	defer cancel()
	err := s.engine.placements.AwaitNomination(waiting, uid, commit.Node)
	switch {
	case errors.Is(err, orders.ErrPodGone):
		return s.void(order, subject, commit, voidPreemptorGone), nil
	case err != nil:
		return nil, err
	}
	if preemptor := s.pod(commit.Preemptor.UID); preemptor != nil {
		order.Preemptor.Priority = corev1helpers.PodPriority(preemptor)
		order.NominationsToClear = s.engine.nominationsToClear(order.Preemptor.Priority, commit.Node)
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
			return s.void(order, subject, commit, reasonAwaitedFailed), nil
		}
		if kept {
			order.Awaited = append(order.Awaited, a)
		}
	}
	if len(order.Victims)+len(order.Awaited)+len(order.NominationsToClear) == 0 {
		return s.void(order, subject, commit, voidNothing), nil
	}
	return s.store(order, subject, commit), nil
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
	data, err := wire.WrapOrder(order, order.Writer, func(envelope *wire.Envelope) error {
		if s.sign != nil {
			s.sign(envelope, subject)
		}
		return nil
	})
	if err != nil {
		return &wire.CommitReply{Void: &wire.Void{Reason: voidNotTaken, Message: err.Error()}}
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
	order.Victims, order.Awaited, order.NominationsToClear, order.Void = nil, nil, nil, &wire.Void{Reason: reason, Message: "in a test"}
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

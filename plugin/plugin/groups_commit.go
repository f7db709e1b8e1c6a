package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// Bounds of clearing nominations of members in the API.
const (
	clearAtOnce  = 16
	clearTimeout = 5 * time.Second
	clearAgain   = 100 * time.Millisecond
)

// clearNominations takes nominations of members back in the API: the scheduler keeps those of members that fit nowhere, and an
// order that was not stored has no evictor. Each is cleared only while it is the one that was seen, and no order is behind it.
func (e *engine) clearNominations(ctx context.Context, pods []*v1.Pod) {
	var running sync.WaitGroup
	slots := make(chan struct{}, clearAtOnce)
	for _, pod := range pods {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			defer goroutines.RecoverPanic(ctx, "clear", nil)
			if err := e.clearNomination(ctx, pod); err != nil {
				klog.FromContext(ctx).Error(err, "nomination_not_cleared", "pod", klog.KObj(pod), "pod_uid", pod.UID, "node", pod.Status.NominatedNodeName)
			}
		})
	}
	running.Wait()
}

// clearNomination patches one member. A conflict says that it has changed: it is looked at again.
func (e *engine) clearNomination(ctx context.Context, pod *v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	for {
		current := e.current(orders.RefOf(pod))
		if current == nil || current.Status.NominatedNodeName != pod.Status.NominatedNodeName || e.inflight.HoldsPlace(pod.UID) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pod.UID, "resourceVersion": current.ResourceVersion},
			"status":   map[string]any{"nominatedNodeName": nil},
		})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		_, err = e.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || ctx.Err() != nil:
			return err
		}
		goroutines.Sleep(ctx, clearAgain)
	}
}

// mates are the members of a pod's group, where queues have limits: the gate holds all of them by holding one. O(pods of the namespace).
func (e *engine) mates(pod *v1.Pod) []*v1.Pod {
	group := minor.GroupName(pod)
	if _, limited := e.gate.QueueOf(pod); group == "" || !limited {
		return nil
	}
	all, err := e.cluster.pods.Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(other *v1.Pod) bool { return minor.GroupName(other) != group })
}

// lookForMembers gives up the room of gangs that have had too few pods for a while, and tells so.
func (e *engine) lookForMembers(ctx context.Context, now time.Time) {
	for orderID, group := range e.inflight.ReleasedGroups() {
		there, needed := e.cluster.gangSize(group.Namespace, group.Name)
		note := fmt.Sprintf("%d of the %d pods that the gang needs are there: the room that was made for it is free for others", there, needed)
		if !e.inflight.MembersMissing(orderID, note, there < needed, now) || !e.leadership.Now(ctx) {
			continue
		}
		minor.Recorder(e.handle, klog.FromContext(ctx)).Eventf(minor.GroupReference(group.Namespace, group.Name, types.UID(group.UID)), nil,
			v1.EventTypeWarning, "RoomGivenUp", "MakeWay", "%s", note)
	}
}

// groupDeleted takes in that a PodGroup was deleted: it needs no room.
func (e *engine) groupDeleted(uid types.UID) {
	e.inflight.Forget(uid)
	e.committer.Forget(e.store.Subjects.Order(wire.KindGroup, string(uid)))
	e.memory.Forget(uid)
	e.verified.failures.Forget(string(uid))
}

package verify

import (
	"context"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// removal is the pods that are removed together: a pod by itself, or the pods of a unit, on all their nodes.
type removal struct {
	victims []Victim
	infos   []fwk.PodInfo
	nodes   []fwk.NodeInfo // of each pod, nil where that is the candidate
}

// dryRun is a copy of one node and of the cycle's state on which pods are removed and put back.
type dryRun struct {
	*Verifier
	node  fwk.NodeInfo
	state fwk.CycleState
	last  *fwk.Status // what a plugin of the scheduler answered last
}

func (t *dryRun) remove(ctx context.Context, info fwk.PodInfo) bool {
	if err := t.node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
		t.last = fwk.AsStatus(err)
		return false
	}
	return t.isSuccess(t.Handle.RunPreFilterExtensionRemovePod(ctx, t.state, t.Pod, info, t.node))
}

func (t *dryRun) add(ctx context.Context, info fwk.PodInfo) bool {
	t.node.AddPodInfo(info)
	return t.isSuccess(t.Handle.RunPreFilterExtensionAddPod(ctx, t.state, t.Pod, info, t.node))
}

// removeAll takes out all pods of a removal. As upstream, pods on other nodes only leave the cycle's state: the filters look at the
// candidate alone.
func (t *dryRun) removeAll(ctx context.Context, together removal) bool {
	for i, info := range together.infos {
		if node := together.nodes[i]; node != nil {
			if !t.isSuccess(t.Handle.RunPreFilterExtensionRemovePod(ctx, t.state, t.Pod, info, node)) {
				return false
			}
		} else if !t.remove(ctx, info) {
			return false
		}
	}
	return true
}

func (t *dryRun) addAll(ctx context.Context, together removal) bool {
	for i, info := range together.infos {
		if node := together.nodes[i]; node != nil {
			if !t.isSuccess(t.Handle.RunPreFilterExtensionAddPod(ctx, t.state, t.Pod, info, node)) {
				return false
			}
		} else if !t.add(ctx, info) {
			return false
		}
	}
	return true
}

// fitsBeside reports whether the pod fits while victims on other nodes are still leaving: a domain wider than the node may need
// them gone. It is false where there are none. The trial is of no use afterwards.
func (t *dryRun) fitsBeside(ctx context.Context, going []removal) bool {
	apart := false
	for _, together := range going {
		for i, info := range together.infos {
			node := together.nodes[i]
			if node == nil {
				continue
			}
			if apart = true; !t.isSuccess(t.Handle.RunPreFilterExtensionAddPod(ctx, t.state, t.Pod, info, node)) {
				return false
			}
		}
	}
	return apart && t.fits(ctx)
}

// fits runs the profile's filters, with the pods nominated to the node and without them.
func (t *dryRun) fits(ctx context.Context) bool {
	return ctx.Err() == nil && t.isSuccess(t.Handle.RunFilterPluginsWithNominatedPods(ctx, t.state, t.Pod, t.node))
}

func (t *dryRun) isSuccess(status *fwk.Status) (success bool) {
	t.last = status
	return status.IsSuccess()
}

// failure says why the last step failed. What a plugin answers while the context ends says nothing of the node.
func (t *dryRun) failure(ctx context.Context) Failure {
	switch {
	case ctx.Err() != nil:
		return Failure{Cause: CauseUnfinished}
	case t.last.IsRejected():
		return Failure{Cause: CauseFilters, Plugin: t.last.Plugin()}
	}
	return Failure{Cause: CauseError}
}

// reprieve puts back all pods of a removal and reports whether it may stay. ok is false where the trial is of no use any more.
func (t *dryRun) reprieve(ctx context.Context, together removal) (stays, ok bool) {
	if !t.addAll(ctx, together) {
		return false, false
	}
	if t.fits(ctx) {
		return true, true
	}
	if ctx.Err() != nil {
		return false, false
	}
	return false, t.removeAll(ctx, together)
}

package shadow

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// withNominations are a scheduler's filters for one question, which says what is nominated. A shadow's own queue does not
// know: it lists only pods that name its profile.
type withNominations struct {
	framework.Framework
	byNode map[string][]fwk.PodInfo
}

// nominating adds the nominations of a question to filters. One whose pod is not there any more, or is bound, counts for
// nothing.
func nominating(filters framework.Framework, pods corelisters.PodLister, nominations []wire.Placement) withNominations {
	byNode := map[string][]fwk.PodInfo{}
	for _, one := range nominations {
		pod, err := pods.Pods(one.Namespace).Get(one.Name)
		if err != nil || pod.UID != types.UID(one.UID) || pod.Spec.NodeName != "" {
			continue
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			continue
		}
		byNode[one.Node] = append(byNode[one.Node], info)
	}
	return withNominations{Framework: filters, byNode: byNode}
}

// NominatedPodsForNode returns the question's nominations of a node.
func (f withNominations) NominatedPodsForNode(node string) []fwk.PodInfo { return f.byNode[node] }

// RunFilterPluginsWithNominatedPods runs the filters as a scheduler does: with the nominated pods to which this one yields,
// and without them. Source: kube-scheduler's framework, which asks its own queue for them.
func (f withNominations) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	var before []fwk.PodInfo
	for _, info := range f.byNode[node.Node().Name] {
		if info.GetPod().UID != pod.UID && corev1helpers.PodPriority(info.GetPod()) >= corev1helpers.PodPriority(pod) {
			before = append(before, info)
		}
	}
	if len(before) > 0 {
		taken, takenState := node.Snapshot(), state.Clone()
		for _, info := range before {
			taken.AddPodInfo(info)
			if status := f.RunPreFilterExtensionAddPod(ctx, takenState, pod, info, taken); !status.IsSuccess() {
				return status
			}
		}
		if status := f.RunFilterPlugins(ctx, takenState, pod, taken); !status.IsSuccess() {
			return status
		}
	}
	return f.RunFilterPlugins(ctx, state, pod, node)
}

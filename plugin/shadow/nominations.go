package shadow

import (
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// nominations are those of one question, by node. A shadow's own queue does not know them: it lists only pods that name its profile.
type nominations struct {
	fwk.PodNominator // none: a shadow nominates nothing
	byNode           map[string][]fwk.PodInfo
}

// nominationsOf are those of a question. One whose pod is not there any more, or is bound, counts for nothing.
func nominationsOf(pods corelisters.PodLister, asked []wire.Placement) nominations {
	byNode := map[string][]fwk.PodInfo{}
	for _, one := range asked {
		pod, err := pods.Pods(one.Namespace).Get(one.Name)
		if err != nil || pod.UID != types.UID(one.UID) || pod.Spec.NodeName != "" {
			continue
		}
		if info, err := framework.NewPodInfo(pod); err == nil {
			byNode[one.Node] = append(byNode[one.Node], info)
		}
	}
	return nominations{byNode: byNode}
}

// NominatedPodsForNode implements fwk.PodNominator.
func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo { return n.byNode[node] }

package verify

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"makeway.dev/makeway/plugin/wire"
)

const (
	low  int32 = 0
	high int32 = 1000
)

var (
	small = size("100")
	large = size("300")
)

func size(amount string) map[v1.ResourceName]string {
	return map[v1.ResourceName]string{v1.ResourceCPU: amount + "m", v1.ResourceMemory: amount}
}

func pod(name, on string, priority int32, requests map[v1.ResourceName]string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).Node(on).Priority(priority).Req(requests).StartTime(metav1.NewTime(time.Unix(1, 0)))
}

// leavingPod has a pod be deleted, with so much of its grace period left.
func leavingPod(pod *v1.Pod, left time.Duration) *v1.Pod {
	ends := metav1.NewTime(time.Now().Add(left))
	pod.DeletionTimestamp = &ends
	return pod
}

// onlyOn binds a pod to a node as the DaemonSet controller does.
func onlyOn(pod *v1.Pod, node string) *v1.Pod {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "logs", Controller: &yes}}
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{named(node)},
	}}}
	return pod
}

func named(nodes ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: nodes}}}
}

// unitRemovable is a pod of the unit "PodGroup default/g".
func unitRemovable(uid, node string, planned bool) wire.Removable {
	return wire.Removable{UID: uid, Rule: RuleLowerPriority, Victim: planned, Unit: "PodGroup default/g", Node: node}
}

package ask

import (
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

var large = map[v1.ResourceName]string{v1.ResourceCPU: "300m", v1.ResourceMemory: "300"}

func node(name string) *v1.Node { return st.MakeNode().Name(name).Obj() }

func pod(name, on string, priority int32, requests map[v1.ResourceName]string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).Node(on).Priority(priority).Req(requests)
}

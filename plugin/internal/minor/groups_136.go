//go:build kube136 || kube135

package minor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// GroupPlugin is empty: this version asks no plugin to make room for a group as one.
type GroupPlugin struct{}

// NewGroupPlugin returns nothing, as there is nothing to be asked.
func NewGroupPlugin(fwk.Handle, PreemptForGroup) GroupPlugin { return GroupPlugin{} }

// GroupName is empty: members of a group make room one by one in this version.
func GroupName(*v1.Pod) string { return "" }

// StateOfGroup is nil: each pod comes to its cycle by itself in this version.
func StateOfGroup(fwk.CycleState) GroupState { return nil }

// GangSize is 0: no gang is placed as one in this version.
func GangSize(fwk.Handle, string, string) (there, needed int) { return 0, 0 }

// GroupReference names a PodGroup in an Event.
func GroupReference(namespace, name string, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "PodGroup", Namespace: namespace, Name: name, UID: uid}
}

// WatchGroups watches nothing.
func WatchGroups(context.Context, informers.SharedInformerFactory, func(types.UID)) (cache.InformerSynced, error) {
	return func() bool { return true }, nil
}

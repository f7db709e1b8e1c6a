// Package minor is all that differs between the minor versions of Kubernetes that the plugin is built against. It is
// built for one of them at a time: files of the others are left out by the build tags kube136 and kube135. No other
// package names a version.
package minor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// SelectVictims chooses victims on a node: it calls choose with what says which pods may go. moreImportant is the order
// in which DefaultPreemption keeps pods.
type SelectVictims func(ctx context.Context, node fwk.NodeInfo, moreImportant func(a, b *v1.Pod) bool, choose func(goes func(*v1.Pod) bool) ([]*v1.Pod, int, *fwk.Status)) ([]*v1.Pod, int, *fwk.Status)

// Eviction is one delete of a preemption.
type Eviction struct {
	Node       string
	Victims    []*v1.Pod // all of the preemption
	Victim     *v1.Pod   // the one that is deleted now
	Preemptors []*v1.Pod // one, or the pods of a group
}

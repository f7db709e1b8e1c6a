//go:build kube135

package minor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreFlight is what a PreBind plugin embeds to name the pods that it takes.
type PreFlight struct {
	Takes func(*v1.Pod) bool
}

// PreBindPreFlight implements fwk.PreBindPlugin.
func (p PreFlight) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if !p.Takes(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

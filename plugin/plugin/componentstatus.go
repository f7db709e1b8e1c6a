package plugin

import (
	"maps"
	"slices"

	"k8s.io/component-base/version"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/wire"
)

// status is what this scheduler answers when it is asked how it is. Whether it leads it does not say:
// kube-scheduler's election does not tell its plugins.
func (e *engine) status() *wire.ComponentStatus {
	own := *e.profiles.ownMode.Load()
	status := &wire.ComponentStatus{
		APIVersion: wire.APIVersion,
		Component:  "scheduler",
		Identity:   e.identity,
		Version:    wire.Version,
		At:         wire.At(e.clock.Now()),
		Mode:       e.control.Mode(own, ""),
		OwnMode:    own,
		Trouble:    e.trouble(),
		Signatures: e.store.Signatures.Describe(),
		Kubernetes: version.DefaultKubeBinaryVersion,
		QueueGates: e.gate.Profiles(),
	}
	if uid, err := e.control.ClusterUID(); err == nil {
		status.ClusterUID = uid
	}
	brake := e.control.Brake()
	status.Brake = brake.Scope()
	named := slices.Clone(brake.Names())
	if state := e.control.State(); state != nil {
		status.Revision = state.Revision
		status.PolicyRevision = state.PolicyRevision
		status.ToldPolicyRevision = state.PolicyRevision
		status.QueuesRevision = state.QueuesRevision
		named = slices.AppendSeq(named, maps.Keys(state.NamespaceModes))
	}
	if len(named) > 0 {
		status.NamespaceModes = map[string]string{}
		for _, namespace := range named {
			status.NamespaceModes[namespace] = e.control.Mode(own, namespace)
		}
	}
	return status
}

// addProfile takes in one more profile: the status names the mode that does most.
func (e *engine) addProfile(mode string) {
	if before := e.profiles.ownMode.Load(); before == nil || control.MoreRestrictive(*before, mode) == *before {
		e.profiles.ownMode.Store(&mode)
	}
}

// trouble is what stands in the way of preempting, or of stopping to.
func (e *engine) trouble() string {
	if unread := e.control.BrakeTrouble(); unread != "" {
		return unread
	}
	if e.store.Signatures.Incomplete() {
		return "signatures are required: " + e.store.Signatures.Describe()
	}
	if denied := e.denied(); denied != "" {
		return denied
	}
	if state, _ := e.planner.Pods.Current(); state != telemetry.Closed {
		return "the planner has not answered recently"
	}
	if state, why := e.memory.Orders.State(); state != telemetry.Closed {
		return why.String()
	}
	return ""
}

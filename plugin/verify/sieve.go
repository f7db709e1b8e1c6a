package verify

import (
	"context"
	"slices"

	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
)

// wideFilters look beyond the node, or reject a pod for want of another one there: that they reject it with all pods gone says
// nothing of what they make of it with a few gone. The planner has columns for each.
var wideFilters = []string{names.InterPodAffinity, names.PodTopologySpread, pluginName}

// Sieve returns those of some nodes where the filters reject the pod even without every pod that might go. leaving: pods that orders in
// flight remove. O(nodes · (pods + filters)), in parallel.
func (v *Verifier) Sieve(ctx context.Context, nodes []fwk.NodeInfo, leaving map[string]bool) map[string]Failure {
	found := make([]Failure, len(nodes))
	v.Handle.Parallelizer().Until(ctx, len(nodes), func(i int) { found[i] = v.withoutAll(ctx, nodes[i], leaving) }, pluginName)
	failed := map[string]Failure{}
	for i, why := range found {
		if why.Cause == CauseFilters {
			failed[nodes[i].Node().Name] = why
		}
	}
	return failed
}

// withoutAll says why the filters reject the pod on a node without every pod that might go; any other cause than theirs says nothing.
func (v *Verifier) withoutAll(ctx context.Context, node fwk.NodeInfo, leaving map[string]bool) (why Failure) {
	defer goroutines.RecoverPanic(ctx, "post_filter", func() { why = Failure{Cause: CauseError} })
	dry, out := v.trialOn(node), &removal{}
	for _, info := range node.GetPods() {
		pod := info.GetPod()
		if minor.InGroup(pod) {
			return Failure{} // pods of its group on other nodes may go with it
		}
		if corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(v.Pod) || leaving[string(pod.UID)] || terminating(pod, v.Now) {
			out.infos, out.nodes = append(out.infos, info), append(out.nodes, node.Node().Name)
		}
	}
	if err := dry.take(ctx, out, dry.members); err != nil {
		return Failure{Cause: CauseError}
	}
	rejected, err := dry.fit(ctx, dry.members)
	if err == nil && rejected == nil {
		return Failure{}
	}
	if why = failureOf(ctx, rejected); slices.Contains(wideFilters, why.Plugin) {
		return Failure{}
	}
	return why
}

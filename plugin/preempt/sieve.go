package preempt

import (
	"context"
	"slices"
	"time"

	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/minor"
)

// Of the pieces in which the planner is asked for candidates: each is so much larger than the one before, up to the most.
const (
	pieceGrowth = 8
	mostInPiece = 1024
)

// wideFilters look beyond the node, or reject a pod for want of another one there: that they reject it with all pods gone says
// nothing of what they make of it with a few gone. The planner has columns for each.
var wideFilters = []string{names.InterPodAffinity, names.PodTopologySpread, Name}

// sieve runs the scheduler's filters on every node that is left, without any pod that some rule might let go there, and leaves out
// the nodes where they reject the preemptor even so. No plan helps there, so that the planner need not be asked about them one
// piece after the other. It rules nothing in. O(nodes · (pods + filters)), in parallel.
func (a *attempt) sieve(ctx context.Context) {
	if daemonSetNode(a.pod) != "" {
		return
	}
	start := time.Now()
	defer func() { verificationDuration.Observe(time.Since(start).Seconds()) }()
	all, err := a.nodes.List()
	if err != nil {
		return
	}
	named := set(a.potential.nodes.Names)
	left := slices.DeleteFunc(slices.Clone(all), func(node fwk.NodeInfo) bool {
		_, failed := a.failed[node.Node().Name]
		return failed || named[node.Node().Name] == a.potential.nodes.AllBut
	})
	leaving := map[string]bool{}
	for _, order := range a.engine.inflight.live() {
		for _, uid := range order.Victims {
			leaving[uid] = true
		}
	}
	v := a.verifier()
	found := make([]failure, len(left))
	a.handle.Parallelizer().Until(ctx, len(left), func(i int) { found[i] = v.withoutAll(ctx, left[i], leaving) }, Name)
	for i, why := range found {
		if why.cause == causeFilters {
			a.fail(left[i].Node().Name, why)
		}
	}
}

// withoutAll says why the filters reject the pod on a node without every pod that might go; any other cause than theirs says nothing.
func (v *verifier) withoutAll(ctx context.Context, node fwk.NodeInfo, leaving map[string]bool) (why failure) {
	defer goroutines.RecoverPanic(ctx, "post_filter", func() { why = failure{cause: causeError} })
	dry := dryRun{verifier: v, node: node.Snapshot(), state: v.state.Clone()}
	for _, info := range node.GetPods() {
		pod := info.GetPod()
		if minor.InGroup(pod) {
			return failure{} // pods of its group on other nodes may go with it
		}
		lower := corev1helpers.PodPriority(pod) < corev1helpers.PodPriority(v.pod)
		if (lower || leaving[string(pod.UID)] || terminating(pod, v.now)) && !dry.remove(ctx, info) {
			return failure{cause: causeError}
		}
	}
	if dry.fits(ctx) {
		return failure{}
	}
	if why = dry.failure(ctx); slices.Contains(wideFilters, why.plugin) {
		return failure{}
	}
	return why
}

// fail notes that a node failed, for this try and for others of pods of the class.
func (a *attempt) fail(node string, why failure) {
	a.failed[node] = why
	if generation, ok := generationOf(a.nodes, node); ok {
		a.engine.verifyFailures.add(a.ownClass(), node, why, generation)
	}
}

// ownClass is the class of the pod, worked out once in a cycle.
func (a *attempt) ownClass() string {
	if a.class == "" {
		a.class = verificationClass(a.pod, a.refused)
	}
	return a.class
}

package preempt

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"makeway.dev/makeway/plugin/wire"
)

// planRequest builds the question about one pod, of which it sends what the planner reads. nodes are those that
// removing pods may help, candidates how
// many of them to write out; prefetched says that it is asked while the filters run. The sets are complete, since
// another planner may answer the next request.
// O(nodes + nominations + orders).
func (pl *MakeWay) planRequest(pod *v1.Pod, mode string, nodes wire.NodeSelection, candidates int, prefetched bool) (*wire.PlanRequest, error) {
	clusterUID, err := pl.engine.clusterUID()
	if err != nil {
		return nil, err
	}
	raw, err := wire.Encode(project(pod))
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	nominations, assumed := pl.engine.placements.Lists(pl.engine.inflight.Nominated(), pod.UID)
	return &wire.PlanRequest{
		APIVersion:          wire.APIVersion,
		RequestID:           wire.NewRequestID(pl.engine.clock.Now()),
		ClusterUID:          clusterUID,
		Mode:                mode,
		TimeoutMilliseconds: pl.args.PlanTimeout.Milliseconds(),
		MaxCandidates:       int64(candidates),
		Profile:             pl.Profile(),
		Pod:                 raw,
		Nodes:               nodes,
		Nominations:         nominations,
		Assumed:             assumed,
		LiveOrders:          pl.engine.inflight.Live(),
		Seen:                pl.engine.seen.all(),
		Ahead:               prefetched,
	}, nil
}

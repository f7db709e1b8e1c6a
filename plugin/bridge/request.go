package bridge

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// planRequest builds the question about one pod. nodes are those that removing pods may help, candidates how
// many of them to write out. The sets are complete, since another planner may answer the next request.
// O(nodes + nominations + orders).
func (pl *MakeWay) planRequest(pod *v1.Pod, mode string, nodes wire.NodeSelection, candidates int) (*wire.PlanRequest, error) {
	clusterUID, err := pl.engine.clusterUID()
	if err != nil {
		return nil, err
	}
	bare := *pod
	bare.ManagedFields = nil
	raw, err := json.Marshal(&bare)
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	nominations, assumed := pl.engine.placements.lists(pl.engine.inflight.nominated(), pod.UID)
	return &wire.PlanRequest{
		APIVersion:          wire.APIVersion,
		RequestID:           wire.NewRequestID(pl.engine.clock.Now()),
		ClusterUID:          clusterUID,
		Mode:                mode,
		TimeoutMilliseconds: pl.args.PlanTimeout.Milliseconds(),
		MaxCandidates:       candidates,
		Profile:             pl.profile(),
		Pod:                 raw,
		Nodes:               nodes,
		Nominations:         nominations,
		Assumed:             assumed,
		LiveOrders:          pl.engine.inflight.live(),
		Seen:                pl.engine.seen.all(),
	}, nil
}

// selectNodes says which of all nodes are meant, as the smaller of the set and its complement. Mostly it is all
// of them, which costs nothing; O(nodes) otherwise.
func selectNodes(all, chosen []fwk.NodeInfo) wire.NodeSelection {
	if len(chosen) == len(all) {
		return wire.NodeSelection{AllBut: true}
	}
	if len(chosen) <= len(all)/2 {
		names := make([]string, 0, len(chosen))
		for _, node := range chosen {
			names = append(names, node.Node().Name)
		}
		return wire.NodeSelection{Names: names}
	}
	in := make(map[string]struct{}, len(chosen))
	for _, node := range chosen {
		in[node.Node().Name] = struct{}{}
	}
	rest := make([]string, 0, len(all)-len(chosen))
	for _, node := range all {
		if _, ok := in[node.Node().Name]; !ok {
			rest = append(rest, node.Node().Name)
		}
	}
	return wire.NodeSelection{Names: rest, AllBut: true}
}

package ask

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// selected are the nodes of a snapshot that a plan request means.
func selected(selection wire.NodeSelection, all []fwk.NodeInfo) map[string]bool {
	meant := map[string]bool{}
	for _, n := range all {
		if name := n.Node().Name; slices.Contains(selection.Names, name) != selection.AllBut {
			meant[name] = true
		}
	}
	return meant
}

func TestPotentialNodesAreThoseOfTheStatuses(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		size := 1 + random.IntN(12)
		var nodes []*v1.Node
		for i := range size {
			nodes = append(nodes, node(fmt.Sprintf("n%d", i)))
		}
		lister := internalcache.NewSnapshot(nil, nodes).NodeInfos()
		all, _ := lister.List()
		codes := []fwk.Code{fwk.Unschedulable, fwk.UnschedulableAndUnresolvable}
		statuses := framework.NewDefaultNodeToStatus()
		statuses.SetAbsentNodesStatus(fwk.NewStatus(codes[random.IntN(2)]))
		explicit, hopeful := random.IntN(size+1), random.Float64()
		for _, i := range random.Perm(size)[:explicit] {
			code := codes[1]
			if random.Float64() < hopeful {
				code = codes[0]
			}
			statuses.Set(nodes[i].Name, fwk.NewStatus(code))
		}
		named := random.IntN(2) == 0
		if !named {
			statuses.Set("an extender's", fwk.NewStatus(codes[random.IntN(2)]))
		}
		reference, _ := statuses.NodesForStatusCode(lister, fwk.Unschedulable)
		want := map[string]bool{}
		for _, n := range reference {
			want[n.Node().Name] = true
		}

		got, total, err := PotentialNodes(statuses, lister, named)
		if err != nil || total != size || got.Count != len(want) || !maps.Equal(selected(got.Nodes, all), want) {
			t.Fatalf("seed %d: %+v of %d, error %v, want %v of %d", seed, got, total, err, want, size)
		}
		if len(want) == size && len(got.Nodes.Names) > 0 {
			t.Fatalf("seed %d: all nodes are potential, and still %v are named", seed, got.Nodes.Names)
		}

		out := sets.New("no node's")
		for _, i := range random.Perm(size)[:random.IntN(size+1)] {
			out.Insert(nodes[i].Name)
			delete(want, nodes[i].Name)
		}
		if left := got.Without(out, lister); left.Count != len(want) || !maps.Equal(selected(left.Nodes, all), want) {
			t.Fatalf("seed %d: %+v without %v is %+v, want %v", seed, got, out, left, want)
		}
	}
}

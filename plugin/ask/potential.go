package ask

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// Potential are the nodes that removing pods may help in one cycle: those whose status is Unschedulable. They
// are kept as they are asked for, as their names or as the names of all others, the fewer of the two.
// Where all nodes are potential, as they mostly are, nothing is kept but their number.
type Potential struct {
	Count int
	Nodes wire.NodeSelection
}

// PotentialOf are those of all nodes, by their place among them, that removing pods may help. O(nodes).
func PotentialOf(all []fwk.NodeInfo, helps func(at int) bool) Potential {
	chosen, others := make([]string, 0, len(all)), make([]string, 0, len(all))
	for i, node := range all {
		if helps(i) {
			chosen = append(chosen, node.Node().Name)
		} else {
			others = append(others, node.Node().Name)
		}
	}
	if len(chosen) > len(all)/2 {
		return Potential{Count: len(chosen), Nodes: wire.NodeSelection{Names: others, AllBut: true}}
	}
	return Potential{Count: len(chosen), Nodes: wire.NodeSelection{Names: chosen}}
}

// equal reports whether the same nodes are meant, written down in the same way. O(names).
func (p Potential) equal(q Potential) bool {
	return p.Count == q.Count && p.Nodes.AllBut == q.Nodes.AllBut && sets.New(p.Nodes.Names...).Equal(sets.New(q.Nodes.Names...))
}

// Without leaves nodes out by name; names that no node has change nothing. O(names).
func (p Potential) Without(names sets.Set[string], nodes fwk.NodeInfoLister) Potential {
	if len(names) == 0 {
		return p
	}
	if !p.Nodes.AllBut {
		kept := slices.DeleteFunc(slices.Clone(p.Nodes.Names), names.Has)
		return Potential{Count: len(kept), Nodes: wire.NodeSelection{Names: kept}}
	}
	out := Potential{Count: p.Count, Nodes: wire.NodeSelection{Names: slices.Clone(p.Nodes.Names), AllBut: true}}
	for name := range names.Difference(sets.New(p.Nodes.Names...)) {
		if _, err := nodes.Get(name); err == nil {
			out.Count--
			out.Nodes.Names = append(out.Nodes.Names, name)
		}
	}
	return out
}

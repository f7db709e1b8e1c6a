package ask

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// Potential are the nodes that removing pods may help in one cycle: those whose status is Unschedulable. They
// are kept as they are asked for, as their names or as the names of all others, mostly the fewer of the two.
// Where all nodes are potential, as they mostly are, nothing is kept but their number.
type Potential struct {
	Count int
	Nodes wire.NodeSelection
}

// PotentialNodes reads the cycle's statuses. named says that every node with a status of its own is in the
// snapshot, as the scheduler has it; an extender may have named others.
//
// O(nodes), as two walks over the statuses, of which the second names the nodes of one kind. For 5,000 nodes, looking each up by its
// name takes six times as long, and one walk that names both kinds three times.
func PotentialNodes(statuses fwk.NodeToStatusReader, nodes fwk.NodeInfoLister, named bool) (p Potential, total int, err error) {
	all, err := nodes.List()
	if err != nil {
		return Potential{}, 0, err
	}
	explicit, ok := statuses.(*framework.NodeToStatus)
	if !ok || !named {
		chosen, err := statuses.NodesForStatusCode(nodes, fwk.Unschedulable)
		if err != nil {
			return Potential{}, 0, err
		}
		return Potential{Count: len(chosen), Nodes: SelectNodes(all, chosen)}, len(all), nil
	}
	explicit.ForEachExplicitNode(func(_ string, status *fwk.Status) { p.Count += helped(status) })
	total, listed, names := len(all), explicit.Len(), p.Count
	p.Nodes.AllBut = p.Count > total/2
	if listed < total {
		p.Nodes.AllBut = helped(explicit.AbsentNodesStatus()) == 1
	}
	if p.Nodes.AllBut {
		names, p.Count = listed-p.Count, p.Count+total-listed
	}
	if names == 0 {
		return p, total, nil
	}
	p.Nodes.Names = make([]string, 0, names)
	explicit.ForEachExplicitNode(func(name string, status *fwk.Status) {
		if (helped(status) == 1) != p.Nodes.AllBut {
			p.Nodes.Names = append(p.Nodes.Names, name)
		}
	})
	return p, total, nil
}

// helped is 1 of a node that removing pods may help, else 0.
func helped(status *fwk.Status) int {
	if status.Code() == fwk.Unschedulable {
		return 1
	}
	return 0
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

// SelectNodes says which of all nodes are meant, as the smaller of the set and its complement. Mostly it is all
// of them, which costs nothing; O(nodes) otherwise.
func SelectNodes(all, chosen []fwk.NodeInfo) wire.NodeSelection {
	switch {
	case len(chosen) == len(all):
		return wire.NodeSelection{AllBut: true}
	case len(chosen) <= len(all)/2:
		return wire.NodeSelection{Names: namesOf(chosen)}
	}
	in := sets.New(namesOf(chosen)...)
	return wire.NodeSelection{Names: slices.DeleteFunc(namesOf(all), in.Has), AllBut: true}
}

// namesOf are the names of nodes.
func namesOf(nodes []fwk.NodeInfo) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Node().Name)
	}
	return names
}

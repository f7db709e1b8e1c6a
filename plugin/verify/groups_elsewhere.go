package verify

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/wire"
)

// closesNothing returns why a victim that goes by itself may not; nil where it may. One on a node of no member goes for a domain, in which
// its node is, and one of the plan's.
func (t *groupTrial) closesNothing(v *wire.GroupVictim) error {
	if v.Unit != "" || t.planned[v.Node] && v.Closes == nil {
		return nil
	}
	if v.Closes == nil || !t.isIn(v.Node, v.Closes) {
		return &Misfit{Message: "a planned victim is on a node without members, and in no domain that it keeps closed"}
	}
	for node := range t.planned {
		if t.isIn(node, v.Closes) {
			return nil
		}
	}
	return &Misfit{Message: "a planned victim keeps a domain closed to which no member comes"}
}

// awaitedElsewhere returns awaited pods that leave and run on none of the plan's nodes: they keep a domain closed, as victims may.
// `awaited`: the order that removes each, empty for what is terminating. O(all pods) where there are any.
func (t *groupTrial) awaitedElsewhere(awaited map[types.UID]string) ([]*outgoing, error) {
	if len(awaited) == 0 {
		return nil, nil
	}
	nodes, err := t.Nodes().List()
	if err != nil {
		return nil, err
	}
	var found []*outgoing
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			orderID, told := awaited[info.GetPod().UID]
			if !told {
				continue
			}
			if out := t.leaving(info, node.Node().Name, orderID); out != nil {
				found = append(found, out)
			}
		}
	}
	return found, nil
}

// isIn reports whether a node is in a domain.
func (t *groupTrial) isIn(name string, domain *wire.ClosedDomain) bool {
	info, err := t.Nodes().Get(name)
	if err != nil {
		return false
	}
	value, labelled := info.Node().Labels[domain.Key]
	return labelled && value == domain.Value
}

// markApart marks victims on nodes where no member goes, where all members pass the filters while these are still leaving: the
// gang does not wait for them then. A wider domain may need them gone, and a queue with a max counts them until they are.
// O(such victims + members · filters); the trial is of no use afterwards.
func (t *groupTrial) markApart(ctx context.Context, going []*outgoing, assignments []minor.Assignment) error {
	if t.Limited {
		return nil
	}
	placed := sets.New[string]()
	for _, one := range assignments {
		placed.Insert(one.Node)
	}
	apart, marked := &outgoing{}, []*Victim{}
	for _, out := range going {
		for i := range out.victims {
			if !placed.Has(out.nodes[i]) {
				apart.infos, apart.nodes = append(apart.infos, out.infos[i]), append(apart.nodes, out.nodes[i])
				marked = append(marked, &out.victims[i])
			}
		}
	}
	if len(marked) == 0 || ctx.Err() != nil {
		return nil
	}
	for i, info := range apart.infos {
		if err := t.Add(info, apart.nodes[i]); err != nil {
			return err
		}
	}
	if err := t.tell(ctx, apart, assignments, t.Handle.RunPreFilterExtensionAddPod); err != nil {
		return err
	}
	if fits, err := t.allFit(ctx, assignments); err != nil || !fits {
		return err
	}
	if known, err := t.isKnown(ctx, assignments); err != nil || !known {
		return err
	}
	for _, one := range marked {
		one.Apart = true
	}
	return nil
}

package verify

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/trial"
)

// pinsKey is where the pins of a trial are in its context.
type pinsKey struct{}

// Pins hold the members of a group to the nodes of its plan while the scheduler's own algorithm is run for it, as a trial: this
// plugin's PreFilter and Filter answer by them, and nothing that the trial does is taken for a real cycle. A context with empty pins
// marks a run of the filters alone.
type Pins struct {
	Probe  bool                 // any node may be asked about
	nodes  map[types.UID]string // by member; one without a node is not placed
	placed sets.Set[types.UID]  // members that were placed, also where the group was not in the end
	tried  types.UID            // the member that is being placed: one comes after the other
}

func WithPins(ctx context.Context, p *Pins) context.Context {
	return context.WithValue(trial.With(ctx), pinsKey{}, p)
}

// PinsOf are those of a trial; nil in a real cycle.
func PinsOf(ctx context.Context) *Pins {
	p, _ := ctx.Value(pinsKey{}).(*Pins)
	return p
}

// PreFilter names the member's node. Filter has to hold it there too: the scheduler tries a nominated node, and one that a like
// pod was placed on, before it looks at what PreFilter says.
func (p *Pins) PreFilter(pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status) {
	if p.Probe {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.tried = pod.UID
	node := p.nodes[pod.UID]
	if node == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable, "makeway: the plan has no node for this member")
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}, nil
}

func (p *Pins) Filter(pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if pinned := p.nodes[pod.UID]; !p.Probe && pinned != node.Node().Name {
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("makeway: the plan has this member on node %s", pinned))
	}
	return nil
}

// Reserve notes that a member is placed.
func (p *Pins) Reserve(pod *v1.Pod) { p.placed.Insert(pod.UID) }

// Unreserve notes that it is not where another plugin refused it. A member that is taken back with its group was placed, and the
// one that is tried last is not why the group was not.
func (p *Pins) Unreserve(pod *v1.Pod) {
	if p.tried == pod.UID {
		p.placed.Delete(pod.UID)
	}
}

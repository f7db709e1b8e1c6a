package orders

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// MissingLasts is how long a gang whose room was made may have too few pods. A Job makes a pod anew 10 s after it was lost.
const MissingLasts = 15 * time.Second

// gang are the pods of a group with an order. A pod is its own only member; a quota has none.
type gang struct {
	members      []member
	nodes        int       // theirs, so many
	missingSince time.Time // of a released one: since when it has too few pods; zero where it has enough
}

// member is a pod of a group with an order, and the node that it is nominated to.
type member struct {
	wire.Placement
	done  bool // bound or gone: it waits for nothing
	shown bool // the API has shown it nominated there
	taken bool // the API shows it nominated elsewhere, or not at all
}

// isGroup reports whether the order makes room for a pod group.
func (e *Order) isGroup() bool { return e.Node == "" && !e.isQuota() }

// groupName names the group of an order for one. A member knows no more of its group than that.
func (e *Order) groupName() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Preemptor.Namespace, Name: e.Preemptor.Name}
}

// isQuota reports whether the order makes room for no pod: it has a queue keep within its quota.
func (e *Order) isQuota() bool { return e.Preemptor.Name == "" }

// Places are the pods that are nominated for the order, each with its node; none for one that is not known.
func (e *Order) Places() []wire.Placement {
	if e == nil {
		return nil
	}
	places := make([]wire.Placement, 0, len(e.members))
	for _, m := range e.members {
		if !m.done {
			places = append(places, m.Placement)
		}
	}
	return places
}

// on reports whether a pod of the order is nominated to a node.
func (e *Order) on(node string) bool {
	return slices.ContainsFunc(e.members, func(m member) bool { return !m.done && m.Node == node })
}

// placeTaken notes where the API shows a pod of the order nominated, and reports whether the order has lost its places by that. While victims
// leave a place that was never shown is lost after shownWithin: an order may succeed before the informer shows the nomination that the
// planner has seen.
func (e *Order) placeTaken(uid types.UID, node string, now time.Time) bool {
	due := e.Phase.Reverts() || now.Sub(e.CreatedAt) >= shownWithin
	lost, all := false, true
	for i := range e.members {
		m := &e.members[i]
		if m.UID == string(uid) {
			m.shown = m.shown || m.Node == node
			m.taken = m.Node != node && (m.shown || due)
			lost = m.taken
		}
		all = all && (m.taken || m.done)
	}
	return lost && (e.Phase == Leaving || (all && e.Phase.Reverts()))
}

// memberDone notes that a member is bound or gone, and reports whether none waits any more. It holds no place in its queue any
// more: it is counted there by itself, or not at all. The lock is held.
func (f *InFlight) memberDone(e *Order, uid types.UID) (all bool) {
	all = true
	for i := range e.members {
		m := &e.members[i]
		if m.UID == string(uid) && !m.done {
			m.done = true
			f.holds.ReleaseQuota(uid)
		}
		all = all && m.done
	}
	return all
}

// putMembers lets the members of a group be found. The lock is held.
func (f *InFlight) putMembers(e *Order) {
	if !e.isGroup() {
		return
	}
	f.byGroup[e.groupName()] = e
	names := map[string]struct{}{}
	for _, m := range e.members {
		f.byMember[types.UID(m.UID)] = e
		names[m.Node] = struct{}{}
	}
	e.nodes = len(names)
}

// dropMembers undoes that. A group made anew under the name may have an order of its own. The lock is held.
func (f *InFlight) dropMembers(e *Order) {
	if !e.isGroup() {
		return
	}
	if f.byGroup[e.groupName()] == e {
		delete(f.byGroup, e.groupName())
	}
	for _, m := range e.members {
		if f.byMember[types.UID(m.UID)] == e {
			delete(f.byMember, types.UID(m.UID))
		}
	}
}

// PlacesOf are the nominations of a preemptor's order that the API does not show otherwise, by pod; nil where it has none.
func (f *InFlight) PlacesOf(preemptor types.UID) []wire.Placement {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var places []wire.Placement
	if e := f.byPod[preemptor]; e != nil {
		for _, m := range e.members {
			if !m.done && !m.taken {
				places = append(places, m.Placement)
			}
		}
	}
	return places
}

// ReleasedGroups are the pod groups that were activated once their room was made, and have come to no cycle since, by their orders.
func (f *InFlight) ReleasedGroups() map[string]wire.PodRef {
	f.mu.RLock()
	defer f.mu.RUnlock()
	groups := map[string]wire.PodRef{}
	for _, e := range f.byPod {
		if e.Phase == Released && e.isGroup() {
			groups[e.OrderID] = e.Preemptor
		}
	}
	return groups
}

// MembersMissing notes whether a gang whose room was made has fewer pods than it needs. The scheduler does not try such a gang, so that
// its nominations would stay for ever: where that has lasted, they are taken back. It reports whether that begins now.
func (f *InFlight) MembersMissing(orderID, reason string, missing bool, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.byOrder[orderID]
	switch {
	case e == nil:
		return false
	case !missing:
		e.missingSince = time.Time{}
		return false
	case e.missingSince.IsZero():
		e.missingSince = now
	}
	if now.Sub(e.missingSince) < MissingLasts || !f.happens(e, onMembersMissing) {
		return false
	}
	e.revertFrom(reason, now)
	return true
}

func RefOfPlacement(place wire.Placement) wire.PodRef {
	return wire.PodRef{Namespace: place.Namespace, Name: place.Name, UID: place.UID}
}

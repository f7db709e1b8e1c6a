package wire

import "slices"

// NameOnce leaves each pod in each list of an order once, and as many nominations as it may clear: evictors refuse an
// order that names a pod twice.
func (o *EvictionOrder) NameOnce() {
	o.Victims = once(o.Victims, func(v Victim) string { return v.UID })
	o.Awaited = once(o.Awaited, func(a Awaited) string { return a.UID })
	o.NominationsToClear = once(o.NominationsToClear, func(n NominationToClear) string { return n.UID })
	o.NominationsToClear = o.NominationsToClear[:min(len(o.NominationsToClear), MostNominations)]
}

// once returns a list without the elements whose UID an earlier one has.
func once[T any](list []T, uid func(T) string) []T {
	seen := make(map[string]struct{}, len(list))
	return slices.DeleteFunc(list, func(one T) bool {
		_, twice := seen[uid(one)]
		seen[uid(one)] = struct{}{}
		return twice
	})
}

// PreemptorUID is of the pod or PodGroup that room is made for; empty for a quota order.
func (o *EvictionOrder) PreemptorUID() string {
	switch {
	case o.Kind == KindGroup && o.Group != nil:
		return o.Group.UID
	case o.Kind != KindGroup && o.Preemptor != nil:
		return o.Preemptor.UID
	}
	return ""
}

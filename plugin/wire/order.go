package wire

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

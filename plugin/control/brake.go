package control

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/wire"
)

// Brake is what the ConfigMap of the brake says; nil where there is none. It is read as `makeway.core.policy.brake`
// reads it, and held to that by the same cases.
type Brake struct {
	everywhere bool
	namespaces []string // sorted; those whose preemptors are braked, where not everywhere
	since      string
	by         string
	reason     string
}

// ParseBrake is what a ConfigMap that exists says. Whatever cannot be understood counts as set everywhere.
func ParseBrake(data map[string]string) *Brake {
	found := &Brake{
		since:  strings.TrimSpace(data["since"]),
		by:     strings.TrimSpace(data["by"]),
		reason: strings.TrimSpace(data["reason"]),
	}
	names := strings.FieldsFunc(data["namespaces"], func(r rune) bool { return strings.ContainsRune(", \t\n\r\f\v", r) })
	slices.Sort(names)
	if strings.TrimSpace(data["mode"]) == wire.ModeOff && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return len(validation.IsDNS1123Label(name)) > 0 }) {
		found.namespaces = slices.Compact(names)
		return found
	}
	found.everywhere = true
	return found
}

// Holds reports whether the pods of a namespace are braked.
func (b *Brake) Holds(namespace string) bool {
	if b == nil {
		return false
	}
	_, named := slices.BinarySearch(b.namespaces, namespace)
	return b.everywhere || named
}

// Scope is what is braked, the same text from every component; empty where nothing is.
func (b *Brake) Scope() string {
	switch {
	case b == nil:
		return ""
	case b.everywhere:
		return "everywhere"
	}
	return strings.Join(b.namespaces, ", ")
}

// Names are the namespaces that are braked by name.
func (b *Brake) Names() []string {
	if b == nil {
		return nil
	}
	return b.namespaces
}

// Brake is the brake as it is now; nil where it is not set.
func (c *Control) Brake() *Brake { return c.brake.Load() }

// BrakeTrouble is why the brake cannot be read; empty where it can.
func (c *Control) BrakeTrouble() string {
	if trouble := c.brakeAt.trouble.Load(); trouble != nil {
		return trouble.Error()
	}
	return ""
}

// takeBrake takes the ConfigMap of the brake as it is, so that it holds without NATS too; nil where there is none. Without the right to
// read it the scheduler goes by the control state, says so in its status, and the evictors, which read the brake before each eviction,
// hold it.
func (c *Control) takeBrake(ctx context.Context, found *v1.ConfigMap) {
	if found == nil {
		c.SetBrake(ctx, nil)
		return
	}
	c.SetBrake(ctx, ParseBrake(found.Data))
}

// SetBrake has the brake hold, or takes it off: nil.
func (c *Control) SetBrake(ctx context.Context, found *Brake) {
	before := c.brake.Swap(found)
	switch {
	case found != nil:
		klog.FromContext(ctx).Info("brake_set", "scope", found.Scope(), "since", found.since, "by", found.by, "reason", found.reason)
	case before != nil:
		klog.FromContext(ctx).Info("brake_released", "scope", before.Scope())
	}
	c.Changed(true)
}

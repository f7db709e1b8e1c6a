package preempt

import (
	"context"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/wire"
)

const brakeName = "makeway-brake"

// brake is what the ConfigMap of the brake says; nil where there is none. It is read as `makeway.core.policy.brake`
// reads it, and held to that by the same cases.
type brake struct {
	everywhere bool
	namespaces []string // sorted; those whose preemptors are braked, where not everywhere
	since      string
	by         string
	reason     string
}

// namespaceName is the form of a namespace's name.
var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// parseBrake is what a ConfigMap that exists says. Whatever cannot be understood counts as set everywhere.
func parseBrake(data map[string]string) *brake {
	found := &brake{
		since:  strings.TrimSpace(data["since"]),
		by:     strings.TrimSpace(data["by"]),
		reason: strings.TrimSpace(data["reason"]),
	}
	names := strings.FieldsFunc(data["namespaces"], func(r rune) bool { return strings.ContainsRune(", \t\n\r\f\v", r) })
	slices.Sort(names)
	if strings.TrimSpace(data["mode"]) == wire.ModeOff && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !namespaceName.MatchString(name) }) {
		found.namespaces = slices.Compact(names)
		return found
	}
	found.everywhere = true
	return found
}

// holds reports whether the pods of a namespace are braked.
func (b *brake) holds(namespace string) bool {
	if b == nil {
		return false
	}
	_, named := slices.BinarySearch(b.namespaces, namespace)
	return b.everywhere || named
}

// scope is what is braked, the same text from every component; empty where nothing is.
func (b *brake) scope() string {
	switch {
	case b == nil:
		return ""
	case b.everywhere:
		return "everywhere"
	}
	return strings.Join(b.namespaces, ", ")
}

// names are the namespaces that are braked by name.
func (b *brake) names() []string {
	if b == nil {
		return nil
	}
	return b.namespaces
}

// watchBrake follows the ConfigMap of the brake, so that it holds without NATS too. Without the right to, the scheduler goes by the
// control state, says so in its status, and the evictors, which read the brake before each eviction, hold it.
func (e *engine) watchBrake(ctx context.Context) error {
	at := e.args.BrakeConfigMap
	if at.Name == "" {
		return nil
	}
	showBrake(nil)
	_, err := e.watchConfigMap(ctx, at, &e.control.brakeTrouble, func(found *v1.ConfigMap) {
		if found == nil {
			e.takeBrake(ctx, nil)
			return
		}
		e.takeBrake(ctx, parseBrake(found.Data))
	})
	return err
}

// takeBrake puts the brake in force, or takes it off: nil.
func (e *engine) takeBrake(ctx context.Context, found *brake) {
	before := e.control.brake.Swap(found)
	showBrake(found)
	switch {
	case found != nil:
		klog.FromContext(ctx).Info("brake_set", "scope", found.scope(), "since", found.since, "by", found.by, "reason", found.reason)
	case before != nil:
		klog.FromContext(ctx).Info("brake_released", "scope", before.scope())
	}
	e.memory.Retries.PolicyChanged()
	e.gate.Reconsider()
	e.inflight.Notify()
}

func showBrake(found *brake) {
	everywhere := 0.0
	if found != nil && found.everywhere {
		everywhere = 1
	}
	brakeGauge.WithLabelValues("cluster").Set(everywhere)
	brakeGauge.WithLabelValues("namespaces").Set(float64(len(found.names())))
}

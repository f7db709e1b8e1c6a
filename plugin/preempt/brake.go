package preempt

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
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

// watchBrake follows the ConfigMap of the brake by itself, so that it holds without NATS too. The informer is the
// plugin's own: the scheduler waits for those of its factory, so it would not start where it may not list
// this one. Without the right to, the scheduler goes by the control state, says so in its status, and the evictors,
// which read the brake before each eviction, hold it.
func (e *engine) watchBrake(ctx context.Context) error {
	at := e.args.BrakeConfigMap
	if at.Name == "" {
		return nil
	}
	client := e.handle.ClientSet()
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, at.Name).String()
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			list, err := client.CoreV1().ConfigMaps(at.Namespace).List(ctx, options)
			e.brakeRead(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			watching, err := client.CoreV1().ConfigMaps(at.Namespace).Watch(ctx, options)
			e.brakeRead(ctx, err)
			return watching, err
		},
	}, client), &v1.ConfigMap{}, 0, cache.Indexers{})
	take := func(object any) {
		defer goroutines.RecoverPanic(ctx, "informer", nil)
		if one, ok := object.(*v1.ConfigMap); ok && one.Name == at.Name {
			e.takeBrake(ctx, parseBrake(one.Data))
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if one, ok := object.(*v1.ConfigMap); ok && one.Name == at.Name {
				e.takeBrake(ctx, nil)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch the brake: %w", err)
	}
	showBrake(nil)
	goroutines.GoRecovered(ctx, "brake", informer.RunWithContext)
	return nil
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
	e.retry.policyChanged()
	e.gate.Reconsider()
	e.inflight.Notify()
}

// brakeRead notes whether the brake could be read.
func (e *engine) brakeRead(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		e.brakeTrouble.Store(nil)
		return
	}
	trouble := fmt.Sprintf("ConfigMap %s/%s cannot be read: %v", e.args.BrakeConfigMap.Namespace, e.args.BrakeConfigMap.Name, err)
	if before := e.brakeTrouble.Swap(&trouble); before == nil || *before != trouble {
		klog.FromContext(ctx).Error(err, "brake_unreadable", "remedy", "let the scheduler list and watch this ConfigMap, or set brakeConfigMap.name of MakeWayArgs to \"\"")
	}
}

func showBrake(found *brake) {
	everywhere := 0.0
	if found != nil && found.everywhere {
		everywhere = 1
	}
	brakeGauge.WithLabelValues("cluster").Set(everywhere)
	brakeGauge.WithLabelValues("namespaces").Set(float64(len(found.names())))
}

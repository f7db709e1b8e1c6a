package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/wire"
)

// Restrictions are what restricts preemption, as far as it is known; Unknown says why it is not.
type Restrictions struct {
	wire.Unplanned
	Unknown string
}

// Restrictions are what the planner has said, in the control state or else on its Lease, where that was made of the policy and the queues
// as they are now, and the PriorityClasses as they are. Without a planner's word nothing restricts where there is neither policy nor
// queues. O(1).
func (c *Control) Restrictions() Restrictions {
	state := c.said()
	for _, stored := range c.stored() {
		revision, unknown := stored.read()
		if unknown != "" {
			return Restrictions{Unknown: unknown}
		}
		if revision == "" {
			continue
		}
		if state == nil {
			return Restrictions{Unknown: fmt.Sprintf("no planner has reported what ConfigMap %s says", stored.at)}
		}
		if revision != stored.toldBy(state) {
			return Restrictions{Unknown: fmt.Sprintf("ConfigMap %s has changed, and no planner has reported what it says", stored.at)}
		}
	}
	if _, unknown := c.breaker.read(); unknown != "" {
		return Restrictions{Unknown: unknown}
	}
	if !c.ClassesSynced() {
		return Restrictions{Unknown: "the PriorityClasses have not been read"}
	}
	found := Restrictions{}
	if state != nil {
		if state.Unplanned == nil {
			return Restrictions{Unknown: "the control state does not say what restricts preemption; its planner is of an older version"}
		}
		found.Unplanned = *state.Unplanned
	}
	if class := c.tolerating.Load(); class != nil && *class != "" && !slices.ContainsFunc(found.Restricting, isClass) {
		found.Restricting = append(slices.Clone(found.Restricting), priorityClassPrefix+*class)
	}
	return found
}

// priorityClassPrefix is before the name of a PriorityClass that restricts preemption.
const priorityClassPrefix = "PriorityClass "

func isClass(name string) bool { return strings.HasPrefix(name, priorityClassPrefix) }

// storedConfig is the ConfigMap of the policy, or of the queues, as the API server has it: a planner or NATS that is away does not tell
// of a change. Its content is the planner's to read.
type storedConfig struct {
	at       types.NamespacedName
	key      string
	toldBy   func(*wire.ControlState) string // the revision of which a planner's word was made
	synced   cache.InformerSynced            // nil: none is configured
	revision atomic.Pointer[string]          // nil: it is not there; empty: it has no such key
	trouble  atomic.Pointer[unreadable]      // nil: it can be read
}

// The keys of the ConfigMaps of policy and queues, as the planner reads them.
const (
	policyKey = "policy.yaml"
	queuesKey = "queues.yaml"
)

// stored are the ConfigMaps of policy and queues.
func (c *Control) stored() []*storedConfig { return []*storedConfig{&c.policy, &c.queues} }

// read is its revision, empty where there is none, or why that is not known.
func (s *storedConfig) read() (revision, unknown string) {
	switch trouble := s.trouble.Load(); {
	case s.at.Name == "":
		return "", ""
	case trouble != nil:
		return "", trouble.Error()
	case s.synced == nil || !s.synced():
		return "", fmt.Sprintf("ConfigMap %s has not been read", s.at)
	}
	return ptr.Deref(s.revision.Load(), ""), ""
}

// Watch follows the ConfigMaps of the brake, the evictors' breaker, the policy and the queues.
func (c *Control) Watch(ctx context.Context) (err error) {
	for _, one := range []struct {
		*storedConfig
		take func(*v1.ConfigMap)
	}{
		{&c.brakeAt, func(found *v1.ConfigMap) { c.takeBrake(ctx, found) }}, {&c.breaker, c.takeBreaker},
		{&c.policy, func(found *v1.ConfigMap) { c.takeRevision(&c.policy, found) }}, {&c.queues, func(found *v1.ConfigMap) { c.takeRevision(&c.queues, found) }},
	} {
		if one.at.Name == "" {
			continue
		}
		if one.synced, err = watchConfigMap(ctx, c.Client, one.at, &one.trouble, one.take); err != nil {
			return err
		}
	}
	return nil
}

// takeRevision takes the ConfigMap of the policy or of the queues as it is; nil where there is none.
func (c *Control) takeRevision(of *storedConfig, found *v1.ConfigMap) {
	var revision *string
	if found != nil {
		revision = new(string)
		if text, there := found.Data[of.key]; there {
			*revision = revisionOf(text)
		}
	}
	of.revision.Store(revision)
	c.Changed(true)
}

// Synced reports whether the ConfigMaps of policy, queues and breaker can be read, and have been.
func (c *Control) Synced() bool {
	return !slices.ContainsFunc(append(c.stored(), &c.breaker), func(stored *storedConfig) bool {
		_, unknown := stored.read()
		return unknown != ""
	})
}

// ClassesChanged notes the first of the PriorityClasses that is annotated with a toleration; what the values mean is the planner's to say.
// core/policy/restrictions.py counts alike. O(PriorityClasses).
func (c *Control) ClassesChanged(classes []*schedulingv1.PriorityClass) {
	first := ""
	for _, class := range classes {
		if toleratesPreemption(class) && (first == "" || class.Name < first) {
			first = class.Name
		}
	}
	c.tolerating.Store(&first)
}

// Annotations of a PriorityClass, from the KEP "Preemption Toleration" of kubernetes-sigs/scheduler-plugins.
const (
	minimumPreemptablePriority = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
	tolerationSeconds          = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
)

// toleratesPreemption reports whether pods of a class may be exempt from preemption.
func toleratesPreemption(class *schedulingv1.PriorityClass) bool {
	seconds, there := class.Annotations[tolerationSeconds]
	_, minimum := class.Annotations[minimumPreemptablePriority]
	return (there || minimum) && seconds != "0"
}

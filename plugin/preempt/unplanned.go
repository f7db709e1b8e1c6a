package preempt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// What becomes of an attempt without a plan.
const (
	unplannedLeft       = "left"       // to the plugins after this one
	unplannedRestricted = "restricted" // held: something restricts preemption
	unplannedUnknown    = "unknown"    // held: it is not known whether anything does
	unplannedStopped    = "stopped"    // held: by the brake, or the evictors' breaker
)

// unplanned is what becomes of an attempt without a plan, and why where the pod waits.
type unplanned struct{ result, why string }

var (
	leftToOthers = unplanned{result: unplannedLeft}
	// notFound is what holds where a panic kept it from being found out.
	notFound = unplanned{unplannedUnknown, "it could not be found out what restricts preemption"}
)

// withoutPlan is what becomes of pods of a namespace that there is no plan for. kube-scheduler's own preemption, which knows no policy,
// acts in the modes off and observe, and in mode enforce where nothing restricts preemption: the policy is not looked at pod by pod.
// O(1).
func (pl *MakeWay) withoutPlan(namespace string, priority int32) unplanned {
	e := pl.engine
	if brake := e.control.brake.Load(); brake.holds(namespace) {
		return unplanned{unplannedStopped, "the brake is set (" + brake.scope() + ")"}
	}
	if e.control.mode(pl.args.Mode, namespace) != wire.ModeEnforce {
		return leftToOthers
	}
	if why := e.memory.EvictorsRefuse(namespace); why != "" {
		return unplanned{unplannedStopped, why.String()}
	}
	return e.restrictions().of(priority)
}

// status is what PostFilter returns for an ending that would leave the pod to the plugins after this one. The preemption after this one
// makes no room either for a pod that never preempts.
func (u unplanned) status(end preemptResult) *fwk.Status {
	if end.kind == endNever {
		return end.status(fwk.Unschedulable)
	}
	unplannedTotal.WithLabelValues(u.result).Inc()
	if u.why == "" {
		return end.status(fwk.Unschedulable)
	}
	end.message += "; nothing is evicted without a plan: " + u.why
	return end.status(fwk.UnschedulableAndUnresolvable)
}

// restrictions are what restricts preemption, as far as it is known; unknown says why it is not.
type restrictions struct {
	wire.Unplanned
	unknown string
}

// of is what becomes of a pod of a priority that there is no plan for.
func (r restrictions) of(priority int32) unplanned {
	setting, value := "default", cmp.Or(r.Default, wire.WhenUnplannedHold)
	if priority >= systemPriority {
		setting, value = "system", cmp.Or(r.System, wire.WhenUnplannedFallback)
	}
	switch {
	case r.unknown != "":
		return unplanned{unplannedUnknown, r.unknown}
	case len(r.Protecting) > 0:
		return unplanned{unplannedRestricted, "pods are protected by " + strings.Join(r.Protecting, ", ")}
	case len(r.Restricting) > 0 && value != wire.WhenUnplannedFallback:
		return unplanned{unplannedRestricted, fmt.Sprintf("preemption is restricted by %s, and whenUnplanned.%s of the policy is hold", strings.Join(r.Restricting, ", "), setting)}
	}
	return leftToOthers
}

// restrictions are what the planner has told, in the control state or else on its Lease, where that was made of the policy and the queues
// as they are now, and the PriorityClasses as they are. Without a planner's word nothing restricts where there is neither policy nor
// queues. O(1).
func (e *engine) restrictions() restrictions {
	state := e.control.told()
	for _, stored := range []*storedConfig{&e.control.policy, &e.control.queues} {
		revision, unknown := stored.read()
		if unknown != "" {
			return restrictions{unknown: unknown}
		}
		if revision == "" {
			continue
		}
		if state == nil {
			return restrictions{unknown: fmt.Sprintf("no planner has told what ConfigMap %s says", stored.at)}
		}
		if revision != stored.toldBy(state) {
			return restrictions{unknown: fmt.Sprintf("ConfigMap %s has changed, and no planner has told what it says", stored.at)}
		}
	}
	if !e.cluster.classesSynced() {
		return restrictions{unknown: "the PriorityClasses have not been read"}
	}
	found := restrictions{}
	if state != nil {
		if state.Unplanned == nil {
			return restrictions{unknown: "the control state does not say what restricts preemption; its planner is of an older version"}
		}
		found.Unplanned = *state.Unplanned
	}
	if class := e.control.tolerating.Load(); class != nil && *class != "" && !slices.ContainsFunc(found.Restricting, isClass) {
		found.Restricting = append(slices.Clone(found.Restricting), priorityClassPrefix+*class)
	}
	return found
}

// priorityClassPrefix is before the name of a PriorityClass that restricts preemption.
const priorityClassPrefix = "PriorityClass "

func isClass(name string) bool { return strings.HasPrefix(name, priorityClassPrefix) }

// told is what a planner has told: the control state, else what was read on its Lease; nil where neither is known.
func (c *control) told() *wire.ControlState {
	if current := c.current.Load(); current != nil {
		return current.state
	}
	return c.noted.Load()
}

// storedConfig is the ConfigMap of the policy, or of the queues, as the API server has it: a planner or NATS that is away does not tell
// of a change. Its content is the planner's to read.
type storedConfig struct {
	at       ConfigMapReference
	key      string
	toldBy   func(*wire.ControlState) string // the revision of which a planner's word was made
	synced   cache.InformerSynced            // nil: none is configured
	revision atomic.Pointer[string]          // nil: it is not there
	trouble  atomic.Pointer[string]          // why it cannot be read
}

// The keys of the ConfigMaps of policy and queues, as the planner reads them.
const (
	policyKey = "policy.yaml"
	queuesKey = "queues.yaml"
)

// read is its revision, empty where there is none, or why that is not known.
func (s *storedConfig) read() (revision, unknown string) {
	switch trouble := s.trouble.Load(); {
	case s.at.Name == "":
		return "", ""
	case trouble != nil:
		return "", *trouble
	case s.synced == nil || !s.synced():
		return "", fmt.Sprintf("ConfigMap %s has not been read", s.at)
	}
	if found := s.revision.Load(); found != nil {
		return *found, ""
	}
	return "", ""
}

// watchStored follows the ConfigMaps of policy and queues.
func (e *engine) watchStored(ctx context.Context) (err error) {
	for _, stored := range []*storedConfig{&e.control.policy, &e.control.queues} {
		if stored.at.Name == "" {
			continue
		}
		take := func(found *v1.ConfigMap) {
			var revision *string
			if found != nil {
				if text, there := found.Data[stored.key]; there {
					name := revisionOf(text)
					revision = &name
				}
			}
			stored.revision.Store(revision)
			e.memory.Retries.PolicyChanged()
		}
		if stored.synced, err = e.watchConfigMap(ctx, stored.at, &stored.trouble, take); err != nil {
			return err
		}
	}
	return nil
}

// priorityClassesChanged notes the first PriorityClass that is annotated with a toleration; what the values mean is the planner's to say.
// core/policy/restrictions.py counts alike. O(PriorityClasses).
func (e *engine) priorityClassesChanged() {
	classes, err := e.cluster.classes.List(labels.Everything())
	if err != nil {
		return // of a cache; it never fails
	}
	first := ""
	for _, class := range classes {
		if toleratesPreemption(class) && (first == "" || class.Name < first) {
			first = class.Name
		}
	}
	e.control.tolerating.Store(&first)
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

// What the planner's Lease, in makeway's namespace, says for schedulers that reach no NATS.
const (
	plannerLease        = "makeway-planner"
	unplannedAnnotation = "makeway.dev/unplanned"
)

// readLease reads what the planner that led last has said of pods without a plan, while no control state is known. Only the planner
// and administrators may write its Lease. A Lease without a word says nothing.
func (e *engine) readLease(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	namespace := e.control.ownNamespace
	found, err := e.handle.ClientSet().CoordinationV1().Leases(namespace).Get(call, plannerLease, metav1.GetOptions{})
	var said *wire.ControlState
	if err == nil && found.Annotations[unplannedAnnotation] != "" {
		said = &wire.ControlState{}
		if err = wire.Decode([]byte(found.Annotations[unplannedAnnotation]), said); err == nil {
			err = e.sameCluster(said)
		}
	}
	if err != nil {
		said = nil
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "planner_lease_unreadable", "namespace", namespace, "lease", plannerLease,
				"effect", "without NATS nothing is evicted where there is a policy or queues", "remedy", "let the scheduler get this Lease")
		}
	}
	if before := e.control.noted.Swap(said); (before == nil) != (said == nil) {
		e.memory.Retries.PolicyChanged()
	}
}

// sameCluster returns an error where a control state is another cluster's.
func (e *engine) sameCluster(state *wire.ControlState) error {
	own, err := e.clusterUID()
	if err == nil && own != state.ClusterUID {
		err = fmt.Errorf("it is of cluster %s", state.ClusterUID)
	}
	return err
}

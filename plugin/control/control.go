// Package control is what applies to preemption and queues in this scheduler: the modes, the brake, what restricts preemption, and the
// limits of queues. It takes them from the control state of the planner, from ConfigMaps, and, while no control state is known, from the
// planner's Lease. It knows neither pods nor orders.
package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// Limits is where the limits of queues become effective. Assume does nothing once a control state has said what holds, and
// reports so.
type Limits interface {
	SetLimits(queues []wire.QueueLimit) error
	NoQueues()
	Assume(exist bool, why string) (decided, shut bool)
}

// revisionAhead is how far ahead of this process's clock the revision of a control state may be, which is a time in
// milliseconds since 1970. Further, it is no planner's: every one that a planner gives later would be older.
const revisionAhead = time.Hour

// isAhead reports whether no planner can have given a revision by now.
func isAhead(revision int64, now time.Time) bool {
	return revision > now.Add(revisionAhead).UnixMilli()
}

// Options are what a Control works with.
type Options struct {
	Client clientset.Interface
	Clock  clock.PassiveClock
	// Names of the ConfigMaps; an empty name says that there is none.
	BrakeAt, BreakerAt, PolicyAt, QueuesAt types.NamespacedName
	// Exempt are the namespaces whose pods queues never hold, until a control state names them.
	Exempt []string

	Stream
	Namespaces corelisters.NamespaceLister
	// ClassesSynced reports whether ClassesChanged has been called with the PriorityClasses as a first list had them.
	ClassesSynced func() bool
	// Changed is called, under no lock, after something has changed. policy: what may be preempted, and for whom, may have.
	Changed func(policy bool)
}

// Stream is where control states come from.
type Stream struct {
	Records interface {
		Follow(ctx context.Context, stream, subject string, from time.Time, take func(natsbus.Record))
		Last(ctx context.Context, stream, subject string) (message natsbus.Record, found bool, err error)
	}
	Subjects wire.Subjects
	// Signatures says which control states count. It keeps one that no key verifies, or of a time to come, and has it taken again when the keys are read.
	Signatures interface {
		Verify(envelope *wire.Envelope, kind wire.SigningKind, subject string) error
		SetAside(r natsbus.Record, err error)
		Await(ctx context.Context, clock clock.PassiveClock, take func(context.Context, natsbus.Record))
		Keep(ctx context.Context, take func(context.Context, natsbus.Record))
	}
}

// snapshot is a control state with when its stream was made.
type snapshot struct {
	state  *wire.ControlState
	stream time.Time
}

// Control holds the last good control state, the brake, and what is known of what restricts preemption. Without them nothing
// restricts a profile's own arguments. Safe for concurrent use.
type Control struct {
	Options
	limits         Limits
	current        atomic.Pointer[snapshot]
	noted          atomic.Pointer[wire.ControlState] // what the planner's Lease says where there is no current; nil: nothing
	brake          atomic.Pointer[Brake]
	policy, queues storedConfig
	brakeAt        storedConfig
	breaker        storedConfig
	trips          atomic.Pointer[trips]  // what the evictors' breaker is open for
	tolerating     atomic.Pointer[string] // the first PriorityClass that tolerates preemption; empty: none does

	taking sync.Mutex // held while a control state is compared with the current one and put in its place
}

// New makes a Control that knows nothing yet; Watch and Start do the rest. UseLimits comes before them.
func New(options Options) *Control {
	telemetry.Register()
	return &Control{
		Options: options,
		brakeAt: storedConfig{at: options.BrakeAt},
		breaker: storedConfig{at: options.BreakerAt},
		policy:  storedConfig{at: options.PolicyAt, key: policyKey, toldBy: func(state *wire.ControlState) string { return state.PolicyRevision }},
		queues:  storedConfig{at: options.QueuesAt, key: queuesKey, toldBy: func(state *wire.ControlState) string { return state.QueuesRevision }},
	}
}

// UseLimits says where the limits of queues become effective; without it, nowhere.
func (c *Control) UseLimits(limits Limits) { c.limits = limits }

// State is the control state that is effective, nil where none is known.
func (c *Control) State() *wire.ControlState {
	if current := c.current.Load(); current != nil {
		return current.state
	}
	return nil
}

// said is what a planner has said: the control state, else what was read on its Lease; nil where neither is known.
func (c *Control) said() *wire.ControlState {
	if state := c.State(); state != nil {
		return state
	}
	return c.noted.Load()
}

// HoldsGroups reports whether nothing is evicted for pods of a gang, which have no plan.
func (c *Control) HoldsGroups() bool {
	said := c.said()
	return said != nil && said.GroupPreemptors == wire.GroupPreemptorsHold
}

// SystemPriority is where the priorities of Kubernetes' own classes begin.
const SystemPriority = 2_000_000_000

// QueuesHold reports whether a queue may hold a pod of a profile. Never held, though counted, are pods that a cluster
// needs to start again: those of Kubernetes' own priorities, of makeway's own namespace, and of the namespaces
// that the policy names. core/queues/exempt.py has the same rule for the planner.
func (c *Control) QueuesHold(profileMode string, priority int32, namespace string) bool {
	if priority >= SystemPriority || namespace == c.QueuesAt.Namespace {
		return false
	}
	exempt := c.Exempt
	if state := c.State(); state != nil && len(state.ExemptNamespaces) > 0 {
		exempt = state.ExemptNamespaces
	}
	return !slices.Contains(exempt, namespace) && c.Mode(profileMode, namespace) == wire.ModeEnforce
}

// Mode is the one that applies to preemptors of a namespace: off where the brake holds, else the more restrictive
// of the profile's own and what a planner has said.
func (c *Control) Mode(profileMode, namespace string) string {
	if c.Brake().Holds(namespace) {
		return wire.ModeOff
	}
	said := c.said()
	if said == nil {
		return profileMode
	}
	mode, ok := said.NamespaceModes[namespace]
	if !ok {
		mode = said.Mode
	}
	return MoreRestrictive(profileMode, mode)
}

// restriction orders modes, from what does least.
var restriction = map[string]int{wire.ModeOff: 0, wire.ModeObserve: 1, wire.ModeEnforce: 2}

// MoreRestrictive is the one of two modes that does less.
func MoreRestrictive(a, b string) string {
	if restriction[b] < restriction[a] {
		return b
	}
	return a
}

// revisionOf names a text as the planner does; see revision_of in runtime/config.py.
func revisionOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])[:16]
}

// Start follows the control states until the context ends. It returns once there are keys to verify them with, or it has waited for
// keys for long enough.
func (c *Control) Start(ctx context.Context) {
	goroutines.KeepRunning(ctx, "control", c.decide)
	c.Signatures.Await(ctx, c.Clock, c.Take)
	goroutines.KeepRunning(ctx, "keys", func(ctx context.Context) { c.Signatures.Keep(ctx, c.Take) })
	goroutines.KeepRunning(ctx, "control", c.follow)
}

// follow takes control states until the context ends.
func (c *Control) follow(ctx context.Context) {
	c.Records.Follow(ctx, c.Subjects.ControlStream(), c.Subjects.Control(), time.Unix(0, 0), func(r natsbus.Record) { c.Take(ctx, r) })
}

// Take puts a control state in effect. One that is not understood, or not meant for this cluster, or
// older than the current one, or of a time that cannot be, leaves that as it is.
func (c *Control) Take(ctx context.Context, r natsbus.Record) {
	state := &wire.ControlState{}
	envelope, err := wire.Unwrap(r.Data, wire.TypeControl, state)
	if err == nil {
		err = c.Signatures.Verify(envelope, wire.SigningControl, c.Subjects.Control())
	}
	if err == nil {
		err = c.meant(state)
	}
	if err == nil {
		err = c.put(ctx, state, r.Stream)
	}
	if err != nil {
		c.Signatures.SetAside(r, err)
		r.Ignore(ctx, err)
	}
}

// meant returns an error where a control state is another cluster's, or of a time that cannot be.
func (c *Control) meant(state *wire.ControlState) error {
	if err := c.sameCluster(state); err != nil {
		return &wire.MisplacedError{Reason: wire.ReasonOtherCluster, Detail: err.Error()}
	}
	if now := c.Clock.Now(); isAhead(state.Revision, now) {
		return &wire.MisplacedError{Reason: wire.ReasonFutureRevision, Detail: fmt.Sprintf("revision %d is more than %s ahead of %s", state.Revision, revisionAhead, now.UTC().Format(time.RFC3339))}
	}
	return nil
}

// ClusterUID is the UID of namespace kube-system, which names the cluster; an error where that is not known yet.
func (c *Control) ClusterUID() (string, error) {
	namespace, err := c.Namespaces.Get(metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("the cluster's UID is not known yet: %w", err)
	}
	return string(namespace.UID), nil
}

// sameCluster returns an error where a control state is another cluster's.
func (c *Control) sameCluster(state *wire.ControlState) error {
	own, err := c.ClusterUID()
	if err == nil && own != state.ClusterUID {
		err = fmt.Errorf("it is of cluster %s", state.ClusterUID)
	}
	return err
}

// put has a control state replace the current one, where it is newer or of another stream.
func (c *Control) put(ctx context.Context, state *wire.ControlState, stream time.Time) error {
	// Two may come at once while a consumer is made anew: the older must not replace the newer.
	c.taking.Lock()
	before := c.current.Load()
	if before != nil && before.stream.Equal(stream) && state.Revision <= before.state.Revision {
		c.taking.Unlock()
		if state.Revision == before.state.Revision {
			return nil // delivered again
		}
		return &wire.MisplacedError{Reason: wire.ReasonOldRevision, Detail: fmt.Sprintf("revision %d, after %d", state.Revision, before.state.Revision)}
	}
	if err := c.putQueues(before, state); err != nil {
		c.taking.Unlock()
		return &wire.MisplacedError{Reason: wire.ReasonUnusableQueues, Detail: err.Error()}
	}
	c.current.Store(&snapshot{state: state, stream: stream})
	c.taking.Unlock()
	c.Changed(before == nil || !reflect.DeepEqual(lasting(before.state), lasting(state)))
	controlRevision.Set(float64(state.Revision))
	klog.FromContext(ctx).Info("control_in_force", "revision", state.Revision, "mode", state.Mode, "namespace_modes", len(state.NamespaceModes),
		"policy_revision", state.PolicyRevision, "queues_revision", state.QueuesRevision, "queues", len(state.Queues))
	return nil
}

// lasting returns a control state without what changes while policy, brake, queues and PriorityClasses are the same.
func lasting(state *wire.ControlState) wire.ControlState {
	lasting := *state
	lasting.Revision, lasting.Pods, lasting.Settled, lasting.Enforcing = 0, 0, nil, nil
	return lasting
}

// putQueues puts the limits of a control state in effect, or takes the gate away.
func (c *Control) putQueues(before *snapshot, state *wire.ControlState) error {
	if c.limits == nil {
		return nil
	}
	if state.QueuesRevision == "" {
		c.limits.NoQueues()
		return nil
	}
	if before != nil && before.state.QueuesRevision != "" && reflect.DeepEqual(before.state.Queues, state.Queues) {
		return nil
	}
	return c.limits.SetLimits(state.Queues)
}

var controlRevision = telemetry.Gauge("makeway_scheduler_control_revision",
	"Revision of the effective control state; 0 where none has been read.")

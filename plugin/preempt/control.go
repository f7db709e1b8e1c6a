package preempt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/wire"
)

// queueLimits is where the limits of queues are put in force. Those that assume do nothing once a control state has
// told, and report so.
type queueLimits interface {
	SetLimits(queues []wire.QueueLimit) error
	NoQueues()
	AssumeLimits(why string) bool
	AssumeNoQueues() bool
	// Decided is closed once it is known whether there are limits.
	Decided() <-chan struct{}
	// Reconsider lets pods that wait be looked at again: modes have changed.
	Reconsider()
}

// How long the gate may be undecided, and how it is decided without a control state.
const (
	// controlWait is how long a scheduler that has just started waits for the control state from NATS.
	controlWait = 2 * time.Second
	// lookWait is how long one look at the ConfigMap of the queues may take.
	lookWait = 2 * time.Second
	// decisionWait bounds what the first cycle waits: both of the above, and a little.
	decisionWait = controlWait + lookWait + time.Second
	// controlPoll is the time between two questions before the first control state.
	controlPoll = 100 * time.Millisecond
	// lookAgain is the time between two looks at the API server while no control state is known.
	lookAgain = 5 * time.Second
)

// Reasons for which control states are ignored besides those of other messages.
const (
	reasonOldRevision    = "old-revision"
	reasonUnusableQueues = "unusable-queues"
	reasonFutureRevision = "future-revision"
)

// revisionAhead is how far ahead of this process's clock the revision of a control state may be, which is a time in
// milliseconds since 1970. Further, it is no planner's: every one that a planner gives later would be older.
const revisionAhead = time.Hour

// isAhead reports whether no planner can have given a revision by now.
func isAhead(revision int64, now time.Time) bool {
	return revision > now.Add(revisionAhead).UnixMilli()
}

// controlSnapshot is the control state in force.
type controlSnapshot struct {
	state  *wire.ControlState
	stream time.Time // when its stream was made
}

// control holds the last good control state, and the brake. Without either nothing restricts a profile's own
// arguments.
type control struct {
	current        atomic.Pointer[controlSnapshot]
	noted          atomic.Pointer[wire.ControlState] // what the planner's Lease says where there is no current; nil: nothing
	brake          atomic.Pointer[brake]
	brakeTrouble   atomic.Pointer[string] // why the brake cannot be read; nil where it can
	policy, queues storedConfig
	tolerating     atomic.Pointer[string] // the first PriorityClass that tolerates preemption; empty: none does
	// ownNamespace is makeway's, and exempt are the namespaces that queues never hold until a control state says
	// which.
	ownNamespace string
	exempt       []string

	taking sync.Mutex // held while a control state is compared with the one in force and put in its place
}

// holdsGroups reports whether nothing is evicted for pods of a gang, which have no plan.
func (c *control) holdsGroups() bool {
	told := c.told()
	return told != nil && told.GroupPreemptors == wire.GroupPreemptorsHold
}

// systemPriority is where the priorities of Kubernetes' own classes begin.
const systemPriority = 2_000_000_000

// holds reports whether a queue may hold a pod of a profile. Never held, though counted, are pods that a cluster
// needs to start again: those of Kubernetes' own priorities, of makeway's own namespace, and of the namespaces
// that the policy names. core/queues/exempt.py has the same rule for the planner.
func (c *control) holds(profileMode string, priority int32, namespace string) bool {
	if priority >= systemPriority || namespace == c.ownNamespace {
		return false
	}
	exempt := c.exempt
	if current := c.current.Load(); current != nil && len(current.state.ExemptNamespaces) > 0 {
		exempt = current.state.ExemptNamespaces
	}
	return !slices.Contains(exempt, namespace) && c.mode(profileMode, namespace) == wire.ModeEnforce
}

// mode is the one in force for preemptors of a namespace: off where the brake holds, else the more restrictive
// of the profile's own and what a planner has told.
func (c *control) mode(profileMode, namespace string) string {
	if c.brake.Load().holds(namespace) {
		return wire.ModeOff
	}
	told := c.told()
	if told == nil {
		return profileMode
	}
	mode, ok := told.NamespaceModes[namespace]
	if !ok {
		mode = told.Mode
	}
	return moreRestrictive(profileMode, mode)
}

// restriction orders modes, from what does least.
var restriction = map[string]int{wire.ModeOff: 0, wire.ModeObserve: 1, wire.ModeEnforce: 2}

func moreRestrictive(a, b string) string {
	if restriction[b] < restriction[a] {
		return b
	}
	return a
}

// followControl follows the control state until the context ends.
func (e *engine) followControl(ctx context.Context) {
	e.store.Records.Follow(ctx, e.store.Subjects.ControlStream, e.store.Subjects.Control, time.Unix(0, 0), func(r natsbus.Record) { e.takeControl(ctx, r) })
}

// runControl decides what the gate does, and what becomes of pods without a plan, until the first control state comes.
func (e *engine) runControl(ctx context.Context) {
	e.awaitControl(ctx)
	queues := true
	for ctx.Err() == nil && e.control.current.Load() == nil {
		queues = queues && e.findQueues(ctx)
		e.readLease(ctx)
		goroutines.Sleep(ctx, lookAgain)
	}
	<-ctx.Done()
}

// revisionOf names a text as the planner does; see revision_of in runtime/config.py.
func revisionOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])[:16]
}

// awaitControl waits until there is a control state, or NATS says that there is none, or NATS has been
// silent for long enough.
func (e *engine) awaitControl(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, controlWait)
	defer cancel()
	for ctx.Err() == nil && e.control.current.Load() == nil {
		_, found, err := e.store.Records.Last(ctx, e.store.Subjects.ControlStream, e.store.Subjects.Control)
		if (err == nil && !found) || errors.Is(err, natsbus.ErrNoStream) {
			return
		}
		goroutines.Sleep(ctx, controlPoll)
	}
}

// findQueues decides about the gate by whether the ConfigMap of the queues exists, which says that there
// are limits to be had. It reports whether to look again. A failure of the API server shuts the gate: without
// it nothing is bound anyway. Where reading is not allowed, no queues are set up for this scheduler.
func (e *engine) findQueues(ctx context.Context) (again bool) {
	at := e.args.QueuesConfigMap
	if at.Name == "" {
		e.gateOpens(ctx, "no ConfigMap of queues is configured")
		return false
	}
	call, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	_, err := e.handle.ClientSet().CoreV1().ConfigMaps(at.Namespace).Get(call, at.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		e.gateShuts(ctx, fmt.Sprintf("ConfigMap %s/%s exists, and no planner has sent them; see that NATS and a planner run", at.Namespace, at.Name))
	case apierrors.IsNotFound(err):
		e.gateOpens(ctx, "there is no ConfigMap of queues")
		return false
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).Error(err, "queues_not_looked_for", "remedy", "let the scheduler get this ConfigMap, or set queuesConfigMap.name of MakeWayArgs to \"\"")
		e.gateOpens(ctx, "the ConfigMap of queues may not be read")
		return false
	default:
		e.gateShuts(ctx, fmt.Sprintf("it cannot be read whether ConfigMap %s/%s exists: %v", at.Namespace, at.Name, err))
	}
	return true
}

func (e *engine) gateOpens(ctx context.Context, why string) {
	if e.gate.AssumeNoQueues() {
		klog.FromContext(ctx).Info("queue_gate_absent", "reason", why)
	}
}

func (e *engine) gateShuts(ctx context.Context, why string) {
	if e.gate.AssumeLimits(why) {
		klog.FromContext(ctx).Info("queue_gate_shut", "reason", why)
	}
}

// takeControl puts a control state in force. One that is not understood, or not meant for this cluster, or
// older than the one in force, or of a time that cannot be, leaves that as it is.
func (e *engine) takeControl(ctx context.Context, r natsbus.Record) {
	state := &wire.ControlState{}
	envelope, err := wire.Unwrap(r.Data, wire.TypeControl, state)
	if err == nil {
		err = e.store.Signatures.Verify(envelope, wire.SigningControl, e.store.Subjects.Control)
	}
	if err != nil {
		if streams.Unverified(err) {
			e.store.Signatures.Refused.Store(&r) // the key may be read later
		}
		e.reportIgnored(ctx, "control_not_understood", r, err)
		return
	}
	if err := e.sameCluster(state); err != nil {
		e.reportIgnored(ctx, "control_not_understood", r, &misroutedError{reasonOtherCluster, err.Error()})
		return
	}
	if now := e.clock.Now(); isAhead(state.Revision, now) {
		e.reportIgnored(ctx, "control_not_understood", r, &misroutedError{reasonFutureRevision, fmt.Sprintf("revision %d is more than %s ahead of %s", state.Revision, revisionAhead, now.UTC().Format(time.RFC3339))})
		return
	}
	// Two may come at once while a consumer is made anew: the older must not replace the newer.
	e.control.taking.Lock()
	defer e.control.taking.Unlock()
	before := e.control.current.Load()
	if before != nil && before.stream.Equal(r.Stream) {
		switch {
		case state.Revision == before.state.Revision:
			return // delivered again
		case state.Revision < before.state.Revision:
			e.reportIgnored(ctx, "control_not_understood", r, &misroutedError{reasonOldRevision, fmt.Sprintf("revision %d, after %d", state.Revision, before.state.Revision)})
			return
		}
	}
	if err := e.putQueues(before, state); err != nil {
		e.reportIgnored(ctx, "control_not_understood", r, &misroutedError{reasonUnusableQueues, err.Error()})
		return
	}
	e.control.current.Store(&controlSnapshot{state: state, stream: r.Stream})
	if before == nil || before.state.PolicyRevision != state.PolicyRevision || before.state.Mode != state.Mode ||
		!reflect.DeepEqual(before.state.NamespaceModes, state.NamespaceModes) || !reflect.DeepEqual(before.state.Unplanned, state.Unplanned) {
		e.memory.Retries.PolicyChanged() // a brake changes modes, and a PriorityClass what restricts preemption, without a new policy
	}
	e.gate.Reconsider()
	e.inflight.Notify()
	controlRevision.Set(float64(state.Revision))
	controlPublished.Set(float64(envelope.Time.Unix()))
	for mode := range restriction {
		value := 0.0
		if mode == state.Mode {
			value = 1
		}
		controlMode.WithLabelValues(mode).Set(value)
	}
	klog.FromContext(ctx).Info("control_in_force", "revision", state.Revision, "mode", state.Mode, "namespace_modes", len(state.NamespaceModes),
		"policy_revision", state.PolicyRevision, "queues_revision", state.QueuesRevision, "queues", len(state.Queues))
}

// putQueues puts the limits of a control state in force, or takes the gate away.
func (e *engine) putQueues(before *controlSnapshot, state *wire.ControlState) error {
	if state.QueuesRevision == "" {
		e.gate.NoQueues()
		return nil
	}
	if before != nil && before.state.QueuesRevision != "" && reflect.DeepEqual(before.state.Queues, state.Queues) {
		return nil
	}
	return e.gate.SetLimits(state.Queues)
}

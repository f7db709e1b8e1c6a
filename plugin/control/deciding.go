package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// How long the gate may be undecided, and how it is decided without a control state.
const (
	// controlWait is how long a scheduler that has just started waits for the control state from NATS.
	controlWait = 2 * time.Second
	// lookWait is how long one look at the planner's Lease may take.
	lookWait = 2 * time.Second
	// controlPoll is the time between two questions before the first control state.
	controlPoll = 100 * time.Millisecond
	// lookAgain is the time between two looks while no control state is known.
	lookAgain = 5 * time.Second
)

// decide decides what the gate does, and what becomes of pods without a plan, until the first control state comes.
func (c *Control) decide(ctx context.Context) {
	c.awaitControl(ctx)
	queues := true
	for ctx.Err() == nil && c.State() == nil {
		queues = queues && c.limits != nil && c.FindQueues(ctx)
		c.ReadLease(ctx)
		goroutines.Sleep(ctx, lookAgain)
	}
	<-ctx.Done()
}

// awaitControl waits until there is a control state, or NATS says that there is none, or NATS has been
// silent for long enough.
func (c *Control) awaitControl(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, controlWait)
	defer cancel()
	for ctx.Err() == nil && c.State() == nil {
		_, found, err := c.Records.Last(ctx, c.Subjects.ControlStream(), c.Subjects.Control())
		if (err == nil && !found) || errors.Is(err, natsbus.ErrNoStream) {
			return
		}
		goroutines.Sleep(ctx, controlPoll)
	}
}

// FindQueues decides about the gate by whether the ConfigMap of the queues exists, which says that there
// are limits to be had. It reports whether to look again. A failure of the API server shuts the gate: without
// it nothing is bound anyway. Where reading is not allowed, no queues are set up for this scheduler.
func (c *Control) FindQueues(ctx context.Context) (again bool) {
	_, unknown := c.queues.read()
	trouble := c.queues.trouble.Load()
	switch {
	case trouble != nil && apierrors.IsForbidden(trouble.error):
		c.assume(ctx, false, unknown)
		return false
	case unknown != "":
		c.assume(ctx, true, unknown)
	case c.queues.revision.Load() != nil:
		c.assume(ctx, true, fmt.Sprintf("ConfigMap %s exists, and no planner has sent them; see that NATS and a planner run", c.queues.at))
	default:
		c.assume(ctx, false, "there is no ConfigMap of queues")
		return false
	}
	return true
}

// assume has the gate go by whether queues exist.
func (c *Control) assume(ctx context.Context, exist bool, why string) {
	switch decided, shut := c.limits.Assume(exist, why); {
	case !decided:
	case shut:
		klog.FromContext(ctx).Info("queue_gate_shut", "reason", why)
	default:
		klog.FromContext(ctx).Info("queue_gate_absent", "reason", why)
	}
}

// What the planner's Lease, in makeway's namespace, says for schedulers that reach no NATS.
const (
	plannerLease        = "makeway-planner"
	unplannedAnnotation = "makeway.dev/unplanned"
)

// ReadLease reads what the planner that led last has said of pods without a plan, while no control state is known. Only the planner
// and administrators may write its Lease. A Lease without a word says nothing.
func (c *Control) ReadLease(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	namespace := c.QueuesAt.Namespace
	found, err := c.Client.CoordinationV1().Leases(namespace).Get(call, plannerLease, metav1.GetOptions{})
	var said *wire.ControlState
	if err == nil && found.Annotations[unplannedAnnotation] != "" {
		said = &wire.ControlState{}
		if err = wire.Decode([]byte(found.Annotations[unplannedAnnotation]), said); err == nil {
			err = c.sameCluster(said)
		}
	}
	if err != nil {
		said = nil
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "planner_lease_unreadable", "namespace", namespace, "lease", plannerLease,
				"effect", "without NATS nothing is evicted where there is a policy or queues", "remedy", "let the scheduler get this Lease")
		}
	}
	if before := c.noted.Swap(said); (before == nil) != (said == nil) {
		c.Changed(true)
	}
}

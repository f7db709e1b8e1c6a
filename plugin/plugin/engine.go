package plugin

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/informing"
	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/internal/perscheduler"
	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// engine is what the profiles of one scheduler share: the connection to NATS, the breaker, the orders
// in flight, the placements, the queue gate, the pods to be tried again. Its goroutines end with the context of New.
type engine struct {
	process
	book
	ownMode  atomic.Pointer[string] // of the profile that may do most
	cluster  cluster
	planner  *ask.Client
	verified verified
	memory   *memory.Memory
	control  *control.Control
	gate     *queues.Gate
}

// process is what the engine runs in.
type process struct {
	args     *MakeWayArgs
	handle   fwk.Handle // the first profile's; queue, nominator and waiting pods are the same for all
	clock    clock.WithTicker
	identity string
	denied   func() string // by NATS
	// life ends every goroutine of the engine; commits outlive the scheduling cycle that starts them.
	life context.Context
}

// book is what the engine knows of orders, and how it asks for them.
type book struct {
	inflight   *orders.InFlight
	placements *orders.Placements
	store      *streams.Store
	committer  *streams.Committer
	leadership *streams.Leadership
}

// cluster is the scheduler's informers.
type cluster struct {
	pods          corelisters.PodLister
	nodes         corelisters.NodeLister
	classes       schedulinglisters.PriorityClassLister
	classesSynced cache.InformerSynced
	synced        []cache.InformerSynced // of pods, nodes, namespaces and groups
	claims        *ask.Claims
	gangSize      func(namespace, name string) (there, needed int)
	started       time.Time
}

// verified is what verification has left behind.
type verified struct {
	failures *verify.Failures
	budget   *verify.Budget
	samples  *verify.Samples
}

var engines perscheduler.Registry[*engine]

// engineFor returns the scheduler's engine, made and started where this is its first profile.
func engineFor(ctx context.Context, args *MakeWayArgs, handle fwk.Handle) (*engine, error) {
	e, existed, err := engines.Of(ctx, handle.SharedInformerFactory(), func() (*engine, error) { return startEngine(ctx, args, handle) })
	if err != nil {
		return nil, err
	}
	if existed {
		e.addProfile(args.Mode)
	}
	return e, pluginargs.Same("MakeWayArgs", e.args, args, e.handle.ProfileName(), handle.ProfileName(), ofProfile...)
}

// startEngine makes the engine of a scheduler, with its connection to NATS, and starts it.
func startEngine(ctx context.Context, args *MakeWayArgs, handle fwk.Handle) (e *engine, err error) {
	identity := natsbus.NewIdentity()
	bus := natsbus.Connect(ctx, args.Options("makeway-scheduler "+identity))
	e = newEngine(args, handle, queues.GateOf(ctx, handle.SharedInformerFactory()), clock.RealClock{}, bus, bus, identity)
	e.planner.Tracer, err = tracing.New(ctx, tracing.Options{Endpoint: args.Tracing.Endpoint, Service: "makeway-scheduler", Instance: identity})
	if err != nil {
		return nil, err
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	goroutines.KeepRunning(ctx, "status", func(ctx context.Context) {
		bus.Serve(ctx, e.store.Subjects.Status(), "", func([]byte) ([]byte, error) { return wire.Encode(e.status()) })
	})
	return e, nil
}

// newEngine puts the parts together. It starts nothing. Metrics are registered here, since that may not
// happen while a goroutine of an engine sets one.
func newEngine(args *MakeWayArgs, handle fwk.Handle, queues *queues.Gate, clock clock.WithTicker, bus streams.Bus, records streams.Records, identity string) *engine {
	telemetry.Register()
	core := handle.SharedInformerFactory().Core().V1()
	inflight, subjects := orders.NewInFlight(queues), args.Subjects()
	signatures := streams.NewSignatures(args.Signatures, types.NamespacedName(args.KeysConfigMap), handle.ClientSet())
	fence := &streams.Fence{Lease: types.NamespacedName(args.Lease), Profile: handle.ProfileName(), Client: handle.ClientSet(), Records: records}
	e := &engine{
		process: process{args: args, handle: handle, clock: clock, identity: identity, denied: bus.Denied},
		book: book{
			inflight: inflight, placements: orders.NewPlacements(), committer: streams.NewCommitter(bus, clock),
			store:      &streams.Store{Records: records, Subjects: subjects, Signatures: signatures, Clock: clock},
			leadership: &streams.Leadership{Fence: fence, Clock: clock},
		},
		cluster: cluster{
			pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
			claims:   &ask.Claims{Claims: core.PersistentVolumeClaims().Lister(), Volumes: core.PersistentVolumes().Lister()},
			gangSize: func(namespace, name string) (there, needed int) { return minor.GangSize(handle, namespace, name) },
		},
		planner: &ask.Client{
			Bus: bus, Subjects: subjects, History: ask.NewHistory(), Seen: ask.NewSeen(),
			Pods: ask.NewBreaker(clock, breakerGauge), Groups: ask.NewBreaker(clock, groupBreakerGauge), Commits: ask.NewBreaker(clock, orderBreakerGauge),
			Least: ask.LeastWait, Late: ask.NewLate(mostLate),
		},
		verified: verified{failures: verify.NewFailures(), budget: &verify.Budget{}, samples: verify.NewSamples()},
	}
	e.control = control.New(control.Options{
		Client: handle.ClientSet(), Clock: clock,
		BrakeAt: types.NamespacedName(args.BrakeConfigMap), BreakerAt: breakerAt(args), PolicyAt: types.NamespacedName(args.PolicyConfigMap), QueuesAt: types.NamespacedName(args.QueuesConfigMap),
		Stream:     control.Stream{Records: records, Subjects: subjects, Signatures: signatures},
		Namespaces: core.Namespaces().Lister(), ClassesSynced: func() bool { return e.cluster.classesSynced() }, Changed: e.controlChanged,
	})
	e.memory = memory.New(clock, e.current)
	e.addProfile(args.Mode)
	e.gate = queues
	queues.Ask(e.store.StoredOrderLives)
	return e
}

// breakerAt is where the evictors keep their breaker: beside the brake.
func breakerAt(args *MakeWayArgs) (at types.NamespacedName) {
	if args.BrakeConfigMap.Name != "" {
		at = types.NamespacedName{Namespace: args.BrakeConfigMap.Namespace, Name: control.Breaker}
	}
	return at
}

// start registers informer handlers and starts the goroutines.
func (e *engine) start(ctx context.Context) error {
	e.life, e.cluster.started = ctx, e.clock.Now()
	core := e.handle.SharedInformerFactory().Core().V1()
	pods, err := informing.Watch(ctx, core.Pods().Informer(), func(_, pod *v1.Pod) { e.podChanged(pod) }, e.podDeleted)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	nodes, err := informing.Watch(ctx, core.Nodes().Informer(), e.nodeChanged, e.nodeDeleted)
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	groups, err := minor.WatchGroups(ctx, e.handle.SharedInformerFactory(), e.groupDeleted)
	if err != nil {
		return fmt.Errorf("watch pod groups: %w", err)
	}
	if err := e.watchDependencies(ctx); err != nil {
		return err
	}
	if err := e.control.Watch(ctx); err != nil {
		return err
	}
	e.cluster.synced = []cache.InformerSynced{pods, nodes, core.Namespaces().Informer().HasSynced, groups}
	goroutines.GoRecovered(ctx, "follow", func(ctx context.Context) {
		// Until pods and nodes are known, an adopted order cannot be told from one whose pods or node are
		// gone; until namespaces are, nor one cluster's messages from another's. The scheduler has also
		// given its queue to the handle by then.
		if !cache.WaitForCacheSync(ctx.Done(), e.cluster.synced...) {
			return
		}
		e.control.Start(ctx)
		goroutines.KeepRunning(ctx, "commit", e.raiseEpoch)
		goroutines.KeepRunning(ctx, "waker", e.runActivator)
		goroutines.KeepRunning(ctx, "retry", e.runRetries)
		goroutines.KeepRunning(ctx, "members", e.runMembers)
		e.follow(ctx)
	})
	return nil
}

// podChanged and podDeleted take pod events in. They call nothing of the scheduler.
func (e *engine) podChanged(pod *v1.Pod) {
	e.planner.Seen.Take(ask.ResourcePods, pod)
	e.placements.Observe(pod)
	if pod.Spec.NodeName != "" {
		e.forget(pod.UID)
		return
	}
	e.inflight.NominatedTo(pod.UID, pod.Status.NominatedNodeName, e.clock.Now())
}

func (e *engine) podDeleted(pod *v1.Pod) {
	e.planner.Seen.Take(ask.ResourcePods, pod)
	e.placements.Removed(pod.UID)
	e.inflight.Deleted(pod.UID, e.clock.Now())
	e.forget(pod.UID)
}

// forget drops what is known of a pod as a preemptor: it is bound or gone.
func (e *engine) forget(uid types.UID) {
	e.inflight.Forget(uid)
	e.planner.Late.Forget(uid)
	e.memory.Forget(uid)
}

// nodeChanged takes in that a node was added or changed. Pods that no filter of the scheduler rejected, since their
// queue kept them out before, hear of it from no other source.
func (e *engine) nodeChanged(before, node *v1.Node) {
	e.planner.Seen.Take(ask.ResourceNodes, node)
	if before == nil || len(framework.NodeSchedulingPropertiesChange(node, before)) > 0 {
		e.memory.Retries.Changed(memory.KindNode, "", "")
	}
}

// nodeDeleted takes in that a node was deleted.
func (e *engine) nodeDeleted(node *v1.Node) {
	e.planner.Seen.Take(ask.ResourceNodes, node)
	e.inflight.NodeDeleted(node.Name)
}

// activate moves pods, those that are not nil, to the active queue, past any back-off. Members of a group are moved in one call:
// of several, those after the first would have the group come to a cycle once more.
func (e *engine) activate(ctx context.Context, pods ...*v1.Pod) {
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		e.inflight.Activated(pod.UID, e.clock.Now())
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	if len(byName) > 0 {
		e.gate.AllowCycle(byName)
		e.handle.Activate(klog.FromContext(ctx), byName)
	}
}

// current is the pod as the informer has it, nil where it is gone.
func (e *engine) current(ref wire.PodRef) *v1.Pod {
	if pod, err := e.cluster.pods.Pods(ref.Namespace).Get(ref.Name); err == nil && string(pod.UID) == ref.UID {
		return pod
	}
	return nil
}

// pending is the pod as the informer has it, where it waits for a node. Where it is bound or gone it is nil, and what is
// kept of the pod as a preemptor is dropped: that may have been noted after the informer had told
// of it. It must not be called under any lock.
func (e *engine) pending(ref wire.PodRef) *v1.Pod {
	switch pod := e.current(ref); {
	case pod == nil:
		e.forget(types.UID(ref.UID))
	case pod.Spec.NodeName != "":
		e.forget(pod.UID)
	default:
		return pod
	}
	return nil
}

// podOf is the pod as the informer has it, or its name and UID alone, which is all the queue needs.
func (e *engine) podOf(ref wire.PodRef) *v1.Pod {
	if pod := e.current(ref); pod != nil {
		return pod
	}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID)}}
}

// controlChanged has what waited for a change of modes or policy looked at again.
func (e *engine) controlChanged(policy bool) {
	if policy {
		e.planner.Late.Outdate()
		e.memory.Retries.Changed(memory.KindConfigMap, "", "")
	}
	e.inflight.Notify()
}

// watchDependencies marks refused pods when an object that they depend on changes. The scheduler has an
// informer of PodDisruptionBudgets anyway. That of PriorityClasses is the plugin's own: the scheduler waits
// for those of its factory, so it would not start where it may not list them.
func (e *engine) watchDependencies(ctx context.Context) error {
	budget := func(budget *policyv1.PodDisruptionBudget) {
		e.planner.Seen.Take(ask.ResourceBudgets, budget)
		e.memory.Retries.Changed(memory.KindPDB, budget.Namespace, budget.Name)
	}
	class := func(class *schedulingv1.PriorityClass) {
		e.planner.Seen.Take(ask.ResourcePriorityClasses, class)
		if all, err := e.cluster.classes.List(labels.Everything()); err == nil { // of a cache; it never fails
			e.control.ClassesChanged(all)
		}
		e.memory.Retries.Changed(memory.KindPriorityClass, "", class.Name)
	}
	budgets := e.handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer()
	if _, err := informing.Watch(ctx, budgets, func(_, now *policyv1.PodDisruptionBudget) { budget(now) }, budget); err != nil {
		return fmt.Errorf("watch PodDisruptionBudgets: %w", err)
	}
	classes := schedulinginformers.NewPriorityClassInformer(e.handle.ClientSet(), 0, cache.Indexers{})
	e.cluster.classes = schedulinglisters.NewPriorityClassLister(classes.GetIndexer())
	synced, err := informing.Watch(ctx, classes, func(_, now *schedulingv1.PriorityClass) { class(now) }, class)
	if err != nil {
		return fmt.Errorf("watch PriorityClasses: %w", err)
	}
	e.cluster.classesSynced = synced
	goroutines.GoRecovered(ctx, "priorityclasses", classes.RunWithContext)
	return nil
}

// runRetries activates refused pods whose time, or object, has come. While the planner does not answer, one
// goes ahead: an attempt costs the scheduler all its filters, and without an answer that is for nothing.
func (e *engine) runRetries(ctx context.Context) {
	ticker := e.clock.NewTicker(memory.RetryTick)
	defer ticker.Stop()
	for {
		turns := false
		select {
		case <-ctx.Done():
			return
		case <-e.memory.Retries.Turns:
			turns = true
		case <-ticker.C():
		}
		for _, ref := range e.memory.Retries.Due(e.planner.Pods.Attempts(memory.RetryBurst), turns) {
			e.activateRetry(ctx, ref)
		}
		refusedGauge.Set(float64(e.memory.Retries.Count()))
	}
}

// activateRetry activates one refused pod.
func (e *engine) activateRetry(ctx context.Context, ref wire.PodRef) {
	defer goroutines.RecoverPanic(ctx, "retry", nil)
	e.activate(ctx, e.pending(ref))
}

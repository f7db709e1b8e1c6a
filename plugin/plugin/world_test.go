package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientsetfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/queues"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

func init() { metrics.Register() }

// Sizes of the conformance cases: nodes hold XL, milli-CPU and bytes alike.
var (
	small  = size("100")
	medium = size("200")
	large  = size("300")
	whole  = size("500")
)

func size(amount string) map[v1.ResourceName]string {
	return map[v1.ResourceName]string{v1.ResourceCPU: amount + "m", v1.ResourceMemory: amount}
}

// world is a scheduler's framework with real in-tree filters on a snapshot, a fake API server behind
// real informers, a real nominator, and a fake at the one edge to NATS.
type world struct {
	t         testing.TB
	ctx       context.Context
	client    *clientsetfake.Clientset
	framework framework.Framework
	activator *recordingActivator
	queue     internalqueue.SchedulingQueue
	bus       *fakeBus
	plugin    *MakeWay
	queues    *queues.Plugin // nil: there are none
	nodes     []fwk.NodeInfo
}

// setup is what a test may change about its world.
type setup struct {
	args      func(*MakeWayArgs)
	filters   []tf.RegisterPluginFunc
	extenders []fwk.Extender
	filter    bool // the plugin is one of the profile's filters
	queues    bool // MakeWayQueues is, too
	gangSize  func(namespace, name string) (there, needed int)
	leastWait time.Duration // that a cycle waits for an answer; 0: longer than any test
	objects   []runtime.Object
	// configMaps answers reads of ConfigMaps; set before anything reads one.
	configMaps k8stesting.ReactionFunc
	unlistable error      // what a list of ConfigMaps is answered with
	unlisted   []*v1.Node // in the scheduler's snapshot alone: thousands would cost the fake API server minutes
}

func node(name string) *v1.Node {
	capacity := size("500")
	capacity[v1.ResourcePods] = "20"
	return st.MakeNode().Name(name).UID(name).Label("hostname", name).Capacity(capacity).Obj()
}

func newWorld(t *testing.T, given setup, nodes []*v1.Node, pods ...*v1.Pod) *world {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	return buildWorld(t, ctx, given, nodes, pods...)
}

// buildWorld is newWorld for benchmarks too, with a logger of their own in the context.
func buildWorld(t testing.TB, ctx context.Context, given setup, nodes []*v1.Node, pods ...*v1.Pod) *world {
	t.Helper()
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)

	objects := []runtime.Object{
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "cluster"}},
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
	}
	var placed []*v1.Pod
	for _, pod := range pods {
		if pod.Namespace == "" {
			pod.Namespace = "default"
		}
		objects = append(objects, pod)
		if pod.Spec.NodeName != "" {
			placed = append(placed, pod)
		}
	}
	for _, n := range nodes {
		objects = append(objects, n)
	}
	objects = append(objects, given.objects...)
	w := &world{t: t, ctx: ctx, client: clientsetfake.NewClientset(objects...), activator: &recordingActivator{}, bus: newFakeBus()}
	if given.configMaps != nil {
		w.client.PrependReactor("get", "configmaps", given.configMaps)
	}
	if given.unlistable != nil {
		w.client.PrependReactor("list", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, given.unlistable })
	}
	factory := informers.NewSharedInformerFactory(w.client, 0)
	snapshot := internalcache.NewSnapshot(placed, slices.Concat(nodes, given.unlisted))
	w.queue = internalqueue.NewSchedulingQueue(nil, factory)
	recorder := &events.FakeRecorder{Events: make(chan string, 100)}

	plugins := append([]tf.RegisterPluginFunc{
		tf.RegisterQueueSortPlugin(queuesort.Name, queuesort.New),
		tf.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
		tf.RegisterPluginAsExtensions(noderesources.Name, frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit), "Filter", "PreFilter"),
		tf.RegisterPluginAsExtensions(interpodaffinity.Name, frameworkruntime.FactoryAdapter(feature.Features{}, interpodaffinity.New), "Filter", "PreFilter"),
		tf.RegisterPluginAsExtensions(podtopologyspread.Name, frameworkruntime.FactoryAdapter(feature.Features{}, podtopologyspread.New), "Filter", "PreFilter"),
	}, given.filters...)
	w.plugin = &MakeWay{} // complete before the first cycle
	if given.queues {
		w.queues = &queues.Plugin{} // as above
		own := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return w.queues, nil }
		plugins = append(plugins, tf.RegisterPluginAsExtensions(queues.Name, own, "PreFilter", "Filter"))
	}
	if given.filter {
		own := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return w.plugin, nil }
		plugins = append(plugins, tf.RegisterPluginAsExtensions(Name, own, "PreFilter", "Filter"))
	}
	var err error
	w.framework, err = tf.NewFramework(ctx, plugins, "default-scheduler", append(frameworkOptions(snapshot),
		frameworkruntime.WithClientSet(w.client),
		frameworkruntime.WithEventRecorder(recorder),
		frameworkruntime.WithExtenders(given.extenders),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithLogger(logger),
		frameworkruntime.WithPodActivator(w.activator),
		frameworkruntime.WithPodNominator(w.queue),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	args := defaultArgs()
	args.Lease.Name = ""
	args.PlanTimeout.Duration = ask.MaxPlanTimeout
	if given.args != nil {
		given.args(&args)
	}
	engine := newEngine(&args, w.framework, queues.GateOf(ctx, factory), clock.RealClock{}, w.bus, w.bus, "test")
	w.plugin.args, w.plugin.handle, w.plugin.engine = &args, w.framework, engine
	w.plugin.Profile = func() wire.Profile { return profileOf(w.framework, nil) }
	if engine.planner.Least = given.leastWait; given.leastWait == 0 {
		engine.planner.Least = ask.MaxPlanTimeout
	}
	w.bus.commit = storing{bus: w.bus, engine: engine}.commit
	if given.queues {
		counts := queues.DefaultArgs()
		counts.Lease, counts.QueuesConfigMap, counts.Mode = args.Lease, args.QueuesConfigMap, args.Mode
		built, err := queues.NewWith(klog.NewContext(ctx, logger), &counts, w.framework, clock.RealClock{}, w.bus)
		if err != nil {
			t.Fatal(err)
		}
		*w.queues = *built
	}
	// The framework of a test knows no pod groups.
	engine.cluster.gangSize = func(string, string) (there, needed int) { return 0, 0 }
	if given.gangSize != nil {
		engine.cluster.gangSize = given.gangSize
	}
	if err := engine.start(klog.NewContext(ctx, logger)); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	w.eventually("the pods are known", func() bool {
		for _, pod := range pods {
			if !engine.placements.Knows(pod.UID) {
				return false
			}
		}
		return true
	})
	if given.unlistable == nil {
		w.eventually("policy, queues and PriorityClasses are read", func() bool {
			return engine.control.Synced() && engine.cluster.classesSynced()
		})
	}
	// A node that the engine hears of later would have the pods of a test tried again.
	w.eventually("the nodes are known", func() bool {
		return !slices.ContainsFunc(engine.cluster.synced, func(synced cache.InformerSynced) bool { return !synced() })
	})
	if w.nodes, err = snapshot.NodeInfos().List(); err != nil {
		t.Fatal(err)
	}
	return w
}

// cycle runs a pod's PreFilter and Filter as the scheduler does, then PostFilter.
func (w *world) cycle(pod *v1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	w.t.Helper()
	state := framework.NewCycleState()
	statuses := framework.NewDefaultNodeToStatus()
	if _, status, _ := w.framework.RunPreFilterPlugins(w.ctx, state, pod); status.IsRejected() {
		statuses.SetAbsentNodesStatus(status)
		return w.postFilter(state, pod, statuses)
	} else if !status.IsSuccess() {
		w.t.Fatalf("PreFilter: %v", status)
	}
	for _, n := range w.nodes {
		status := w.framework.RunFilterPluginsWithNominatedPods(w.ctx, state, pod, n)
		if status.IsSuccess() {
			w.t.Fatalf("the pod fits node %s as it is", n.Node().Name)
		}
		statuses.Set(n.Node().Name, status)
	}
	return w.postFilter(state, pod, statuses)
}

// postFilter runs the PostFilter plugins until one ends the chain.
func (w *world) postFilter(state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if w.queues != nil {
		if result, status := w.queues.PostFilter(w.ctx, state, pod, statuses); status.Code() != fwk.Unschedulable {
			return result, status
		}
	}
	return w.plugin.PostFilter(w.ctx, state, pod, statuses)
}

// state is a cycle's after the pod's PreFilter.
func (w *world) state(pod *v1.Pod) fwk.CycleState {
	w.t.Helper()
	state := framework.NewCycleState()
	if _, status, _ := w.framework.RunPreFilterPlugins(w.ctx, state, pod); !status.IsSuccess() {
		w.t.Fatalf("PreFilter: %v", status)
	}
	return state
}

// nominated runs a cycle that must nominate, and returns the order that was marked.
func (w *world) nominated(pod *v1.Pod, node string) *orders.Order {
	w.t.Helper()
	result, status := w.cycle(pod)
	if !status.IsSuccess() || result == nil || result.NominatedNodeName != node {
		w.t.Fatalf("result %+v, status %v, want a nomination to %s", result, status, node)
	}
	return w.entry(pod.UID)
}

// entry is a copy of what is known of a pod's order, nil where there is none.
func (w *world) entry(uid types.UID) *orders.Order {
	return w.plugin.engine.inflight.Known(uid)
}

// show writes the nomination to the API, as the scheduler does after PostFilter, and waits until the informer has it.
func (w *world) show(pod *v1.Pod, node string) {
	w.t.Helper()
	shown := pod.DeepCopy()
	shown.Status.NominatedNodeName = node
	if _, err := w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(w.ctx, shown, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the nomination is known", func() bool {
		known := w.plugin.engine.current(orders.RefOf(pod))
		return known == nil || known.Status.NominatedNodeName == node
	})
}

// ends are the ways in which a pod stops waiting for room.
var ends = map[string]func(*world, *v1.Pod){"gone": (*world).delete, "bound": (*world).bind}

func (w *world) delete(pod *v1.Pod) {
	w.t.Helper()
	if err := w.client.CoreV1().Pods(pod.Namespace).Delete(w.ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) bind(pod *v1.Pod) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Pods(pod.Namespace).Update(w.ctx, on(pod, "n1"), metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) gated(pod *v1.Pod) bool { return !w.plugin.PreEnqueue(w.ctx, pod).IsSuccess() }

// held reports whether its queue holds a pod.
func (w *world) held(pod *v1.Pod) bool {
	w.eventually("it is known whether there are limits", func() bool { _, shut := w.queues.Gate().State(); return !shut })
	return !w.queues.PreEnqueue(w.ctx, pod).IsSuccess()
}

func (w *world) eventually(what string, true func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if true() {
			return
		}
	}
	w.t.Fatalf("never: %s", what)
}

// following waits until the engine follows its streams: three, or four with queues.
func (w *world) following(streams int) {
	w.t.Helper()
	w.eventually("the streams are followed", func() bool {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		return len(w.bus.follows) == streams
	})
}

// deaf has the engine, once it follows its streams, hear no message any more.
func (w *world) deaf(streams int) {
	w.t.Helper()
	w.following(streams)
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	w.bus.follows = nil
}

// recordingActivator counts activations by pod.
type recordingActivator struct {
	mu    sync.Mutex
	count map[types.UID]int
}

func (a *recordingActivator) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == nil {
		a.count = map[types.UID]int{}
	}
	for _, pod := range pods {
		a.count[pod.UID]++
	}
}

func (a *recordingActivator) of(uid types.UID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[uid]
}

// fakeBus is NATS in memory. plan answers plan requests, and commit commits. Where publish says so, a commit fails, after its order is stored or
// without.
type fakeBus struct {
	mu       sync.Mutex
	plan     func(*wire.PlanRequest) (*wire.PlanReply, error)
	raw      func(*wire.PlanRequest) []byte // instead of plan: an answer as it is
	requests []*wire.PlanRequest
	group    func(*wire.PlanRequest) (*wire.PlanReply, error) // answers those about groups
	asked    []*wire.PlanRequest
	messages []natsbus.Record
	ids      map[string]uint64
	publish  func(attempt int) (store bool, err error)
	commit   func(context.Context, *wire.CommitRequest) (*wire.CommitReply, error) // answers commits
	commits  []*wire.CommitRequest
	attempts int
	epochs   int // counted up
	follows  []*follower
	sent     func(ctx context.Context, what string) // told of each request and each commit
}

type follower struct {
	prefix string
	take   func(natsbus.Record)
}

func newFakeBus() *fakeBus { return &fakeBus{ids: map[string]uint64{}} }

// planRequests are those that have come so far, of pods.
func (b *fakeBus) planRequests() []*wire.PlanRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func (b *fakeBus) Denied() string { return "" }

func (b *fakeBus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if b.sent != nil {
		b.sent(ctx, "request")
	}
	if strings.HasSuffix(subject, ".plan.group") {
		return b.requestGroup(data)
	}
	request, err := wire.DecodeVersioned[wire.PlanRequest](data)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.requests = append(b.requests, request)
	plan := b.plan
	b.mu.Unlock()
	if b.raw != nil {
		return b.raw(request), nil
	}
	if plan == nil {
		return nil, natsbus.ErrNoResponders
	}
	reply, err := plan(request)
	if err != nil {
		return nil, err
	}
	reply.APIVersion, reply.Planner = wire.APIVersion, "test"
	if reply.RequestID == "" {
		reply.RequestID = request.RequestID
	}
	if reply.Status == "" {
		reply.Status = wire.StatusCandidates
	}
	if request.Mode == wire.ModeEnforce {
		reply.Offer = cmp.Or(reply.Offer, "offer")
	}
	return json.Marshal(reply)
}

func (b *fakeBus) requestGroup(data []byte) ([]byte, error) {
	request, err := wire.DecodeVersioned[wire.PlanRequest](data)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.asked = append(b.asked, request)
	group := b.group
	b.mu.Unlock()
	if group == nil {
		return nil, natsbus.ErrNoResponders
	}
	reply, err := group(request)
	if err != nil {
		return nil, err
	}
	reply.APIVersion, reply.Planner, reply.RequestID = wire.APIVersion, "test", request.RequestID
	if reply.Status == "" {
		reply.Status = wire.StatusCandidates
	}
	if request.Mode == wire.ModeEnforce {
		reply.Offer = cmp.Or(reply.Offer, "offer")
	}
	return json.Marshal(reply)
}

func (b *fakeBus) Ask(ctx context.Context, _ string, data []byte) ([]byte, error) {
	if b.sent != nil {
		b.sent(ctx, "commit")
	}
	commit, err := wire.DecodeVersioned[wire.CommitRequest](data)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.attempts++
	b.commits = append(b.commits, commit)
	store, failure := true, error(nil)
	if b.publish != nil {
		store, failure = b.publish(b.attempts)
	}
	b.mu.Unlock()
	if !store {
		return nil, failure
	}
	reply, err := b.commit(ctx, commit)
	if err = errors.Join(err, failure); err != nil {
		return nil, err
	}
	reply.APIVersion, reply.OrderID, reply.Planner, reply.Status = wire.APIVersion, commit.OrderID, "test", "stored"
	if reply.Void != nil {
		reply.Status = "void"
	}
	return json.Marshal(reply)
}

func (b *fakeBus) store(subject string, data []byte) uint64 {
	r := natsbus.Record{Subject: subject, Sequence: uint64(len(b.messages) + 1), Data: data}
	b.messages = append(b.messages, r)
	for _, f := range b.follows {
		if len(subject) > len(f.prefix) && subject[:len(f.prefix)] == f.prefix {
			go f.take(r)
		}
	}
	return r.Sequence
}

// put stores a message as another process would.
func (b *fakeBus) put(subject string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store(subject, data)
}

func (b *fakeBus) last(subject string) (natsbus.Record, bool) {
	for i := len(b.messages) - 1; i >= 0; i-- {
		if b.messages[i].Subject == subject {
			return b.messages[i], true
		}
	}
	return natsbus.Record{}, false
}

func (b *fakeBus) Last(_ context.Context, _, subject string) (natsbus.Record, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, found := b.last(subject)
	return r, found, nil
}

func (b *fakeBus) Follow(ctx context.Context, _, subjects string, _ time.Time, take func(natsbus.Record)) {
	b.mu.Lock()
	f := &follower{prefix: subjects[:len(subjects)-1], take: take}
	for _, r := range b.messages {
		if len(r.Subject) > len(f.prefix) && r.Subject[:len(f.prefix)] == f.prefix {
			go take(r)
		}
	}
	b.follows = append(b.follows, f)
	b.mu.Unlock()
	<-ctx.Done()
}

func (b *fakeBus) NextEpoch(context.Context, string, string) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epochs++
	return 7, nil
}

// orders are how many orders are in the stream, without voids.
func (w *world) orders() (n int) {
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	for _, r := range w.bus.messages {
		order := &wire.EvictionOrder{}
		if _, err := wire.Unwrap(r.Data, wire.TypeOrder, order); err == nil && order.Void == nil {
			n++
		}
	}
	return n
}

// wrapOrder is the envelope of an order, not signed.
func wrapOrder(order *wire.EvictionOrder, source string) ([]byte, error) {
	return wrap(wire.TypeOrder, order.OrderID, source, order.PreemptorUID(), order.CreatedAt, order)
}

// order waits for the n-th order in the stream.
func (w *world) order(n int) *wire.EvictionOrder {
	w.t.Helper()
	order := &wire.EvictionOrder{}
	w.eventually(fmt.Sprintf("order %d is in the stream", n), func() bool {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		if len(w.bus.messages) < n {
			return false
		}
		_, err := wire.Unwrap(w.bus.messages[n-1].Data, wire.TypeOrder, order)
		return err == nil
	})
	return order
}

// end writes an order's outcome, as an evictor does.
func (w *world) end(order *wire.EvictionOrder, result string) {
	w.t.Helper()
	outcome := &wire.Outcome{
		OrderID: order.OrderID, Kind: order.Kind, ClusterUID: order.ClusterUID, Epoch: order.Fence.Epoch, Result: result, Evictor: "test",
		StartedAt: order.CreatedAt, FinishedAt: wire.At(time.Now()), PreemptorUID: order.PreemptorUID(), Node: order.Node,
	}
	for _, v := range order.Victims {
		outcome.Victims = append(outcome.Victims, wire.VictimOutcome{Namespace: v.Namespace, Name: v.Name, UID: v.UID, Result: "deleted"})
	}
	w.tell(outcome)
}

// tell puts an outcome into its stream.
func (w *world) tell(outcome *wire.Outcome) {
	w.t.Helper()
	data, err := wrap(wire.TypeOutcome, "out-"+outcome.OrderID, "makeway/evictor/test", outcome.PreemptorUID, outcome.FinishedAt, outcome)
	if err != nil {
		w.t.Fatal(err)
	}
	w.bus.put(w.plugin.engine.store.Subjects.Outcome(outcome.OrderID), data)
}

// answers makes a planner that answers with the same candidates for every request.
func answers(candidates ...wire.Candidate) func(*wire.PlanRequest) (*wire.PlanReply, error) {
	return func(*wire.PlanRequest) (*wire.PlanReply, error) { return &wire.PlanReply{Candidates: candidates}, nil }
}

// candidate names a node with pods in the order of their being offered back; "!" before a UID makes it
// a planned victim.
func candidate(node string, removable ...string) wire.Candidate {
	c := wire.Candidate{Node: node}
	for _, uid := range removable {
		isVictim := uid[0] == '!'
		if isVictim {
			uid = uid[1:]
		}
		c.Removable = append(c.Removable, wire.Removable{UID: uid, Rule: verify.RuleLowerPriority, Victim: isVictim})
	}
	return c
}

// pod makes a pod whose UID is its name; on is its node, empty for a pending one.
func pod(name, on string, priority int32, requests map[v1.ResourceName]string) *st.PodWrapper {
	return st.MakePod().Namespace("default").SchedulerName("default-scheduler").Name(name).UID(name).Node(on).Priority(priority).Req(requests).StartTime(metav1.NewTime(time.Unix(1, 0)))
}

// limit is a queue with a max of so much of each resource, by name.
func limit(path string, of ...any) wire.QueueLimit {
	l := wire.QueueLimit{Path: path, Max: map[string]int64{}}
	for i := 0; i+1 < len(of); i += 2 {
		l.Max[of[i].(string)] = int64(of[i+1].(int))
	}
	return l
}

func on(pod *v1.Pod, node string) *v1.Pod {
	placed := pod.DeepCopy()
	placed.Spec.NodeName = node
	return placed
}

const (
	neg  int32 = -100
	low  int32 = 0
	mid  int32 = 100
	high int32 = 1000
)

var start = time.Unix(1000, 0)

// at is a time some milliseconds after the start.
func at(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }

// wrap encodes a message in an envelope, as its writer does.
func wrap(eventType, id, source, subject string, at wire.Time, message any) ([]byte, error) {
	data, err := wire.Encode(message)
	if err != nil {
		return nil, err
	}
	return wire.Encode(&wire.Envelope{
		SpecVersion: wire.SpecVersion, ID: id, Source: source, Type: eventType, Time: at, DataContentType: "application/json", Subject: subject, Data: data,
	})
}

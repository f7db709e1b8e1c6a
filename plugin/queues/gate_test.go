package queues

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"

	"makeway.dev/makeway/plugin/wire"
)

const (
	low, mid, high = 0, 100, 1000
	systemPriority = 2_000_000_000
)

var start = time.Unix(1000, 0)

// gateWorld is a gate with an informer's store of its own, without a scheduler.
type gateWorld struct {
	t      testing.TB
	gate   *Gate
	clock  *testingclock.FakeClock
	store  cache.Indexer
	exempt atomic.Pointer[[]string] // namespaces
}

func newGateWorld(t testing.TB) *gateWorld {
	w := &gateWorld{t: t, clock: testingclock.NewFakeClock(start)}
	w.exempt.Store(&[]string{"kube-system"})
	w.store = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	w.gate = NewGate(w.clock, corelisters.NewPodLister(w.store), func(profileMode string, priority int32, namespace string) bool {
		return profileMode == wire.ModeEnforce && priority < systemPriority && !slices.Contains(*w.exempt.Load(), namespace)
	})
	return w
}

// limited is a gate world with limits in force.
func limited(t testing.TB, limits ...wire.QueueLimit) *gateWorld {
	w := newGateWorld(t)
	w.limit(limits...)
	return w
}

func (w *gateWorld) limit(limits ...wire.QueueLimit) {
	w.t.Helper()
	if err := w.gate.SetLimits(limits); err != nil {
		w.t.Fatal(err)
	}
}

// shows lets the informer show pods.
func (w *gateWorld) shows(pods ...*v1.Pod) {
	for _, pod := range pods {
		_ = w.store.Add(pod) // the key of a pod cannot fail
		w.gate.PodChanged(pod)
	}
}

func (w *gateWorld) deletes(pod *v1.Pod) {
	_ = w.store.Delete(pod)
	w.gate.PodDeleted(pod.UID)
}

// activated are the pods that the gate lets be tried now.
func (w *gateWorld) activated() []string {
	refs, _ := w.gate.due(true)
	names := []string{}
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	return names
}

// enters runs a pod through PreFilter and Reserve.
func (w *gateWorld) enters(pod *v1.Pod) bool {
	if w.gate.check(pod, wire.ModeEnforce) != nil {
		return false
	}
	return w.gate.Reserve(on(pod, "n1"), wire.ModeEnforce) == nil
}

func (w *gateWorld) rejected(pod *v1.Pod) *Rejection {
	w.t.Helper()
	r := w.gate.check(pod, wire.ModeEnforce)
	if r == nil {
		w.t.Fatalf("%s passes the gate", pod.Name)
	}
	return r
}

func (w *gateWorld) used(path, resource string) int64 {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	tree := w.gate.usage.tree
	return w.gate.usage.used[tree.byPath[path].number][tree.index[resource]]
}

// in is a pending pod in a queue that asks for so many milli-CPU.
func in(queue, name string, priority int32, cpu int) *st.PodWrapper {
	return pod(name, "", priority, map[v1.ResourceName]string{v1.ResourceCPU: fmt.Sprintf("%dm", cpu)}).Label("queue", queue)
}

func on(pod *v1.Pod, node string) *v1.Pod {
	placed := pod.DeepCopy()
	placed.Spec.NodeName = node
	return placed
}

func TestAFullQueueSaysWhatItIsShortOf(t *testing.T) {
	w := limited(t, limit("root", "memory", 10<<30), limit("root.ml", "cpu", 50000, "pods", 2, "example.com/gpu", 0))
	w.shows(on(in("root.ml", "a", 0, 48000).Obj(), "n1"), on(in("root.ml", "b", 0, 0).Obj(), "n1"))

	cpu := w.rejected(in("root.ml", "c", 0, 4000).Obj())
	more := w.rejected(pod("d", "", 0, map[v1.ResourceName]string{"cpu": "2500m", "memory": "12Gi", "example.com/gpu": "1"}).Label("queue", "root.ml").Obj())

	if want := "queue root.ml: cpu 48 of 50 used, 4 asked; queue root.ml: pods 2 of 2 used, 1 asked"; cpu.message != want {
		t.Errorf("message %q, want %q", cpu.message, want)
	}
	for _, part := range []string{"cpu 48 of 50 used, 2500m asked", "example.com/gpu 0 of 0 used, 1 asked", "queue root: memory 0 of 10Gi used, 12Gi asked"} {
		if !strings.Contains(more.message, part) {
			t.Errorf("message %q does not say %q", more.message, part)
		}
	}
}

func TestVictimsMayHelpWhereEnoughIsHeldByLowerPriorityInEveryFullQueue(t *testing.T) {
	for name, test := range map[string]struct {
		preemptor *st.PodWrapper
		reason    string
	}{
		"lower ones hold enough":                 {in("root.a.x", "p", high, 20), rejectedMayHelp},
		"lower ones hold too little":             {in("root.a.x", "p", mid, 20), rejectedFull},
		"lower ones hold enough of that":         {in("root.a.x", "p", mid, 10), rejectedMayHelp},
		"only outside the queue":                 {in("root.a.y", "p", high, 20), rejectedFull},
		"more than the queue may hold":           {in("root.a.x", "p", high, 200), rejectedFull},
		"it never preempts":                      {in("root.a.x", "p", high, 20).PreemptionPolicy(v1.PreemptNever), rejectedFull},
		"equals, for an ordinary pod":            {in("root.a.x", "p", low, 10), rejectedFull},
		"equals, for a pod of a DaemonSet":       {in("root.a.x", "p", low, 10).OwnerReference("d", appsv1.SchemeGroupVersion.WithKind("DaemonSet")), rejectedMayHelp},
		"equals, for a kind of another group":    {in("root.a.x", "p", low, 10).OwnerReference("d", v1.SchemeGroupVersion.WithKind("DaemonSet")), rejectedFull},
		"the queue above is full, of others too": {in("root.a.z", "p", high, 10), rejectedMayHelp},
	} {
		t.Run(name, func(t *testing.T) {
			w := limited(t, limit("root"), limit("root.a", "cpu", 100), limit("root.a.x", "cpu", 60), limit("root.a.y", "cpu", 40), limit("root.a.z"))
			w.shows(on(in("root.a.x", "l", low, 10).Obj(), "n1"), on(in("root.a.x", "m", mid, 50).Obj(), "n1"), on(in("root.a.y", "h", high, 40).Obj(), "n1"))

			if got := w.rejected(test.preemptor.Obj()); got.reason != test.reason {
				t.Errorf("reason %s (%s), want %s", got.reason, got.message, test.reason)
			}
		})
	}
}

func TestAPodIsNotHeldForWhatItDoesNotAsk(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	w.shows(on(in("", "a", 0, 500).Obj(), "n1"))

	if r := w.gate.check(in("", "b", 0, 0).Obj(), wire.ModeEnforce); r != nil {
		t.Errorf("rejected: %s", r.message)
	}
}

func TestAPodCountsOnceHoweverItIsTold(t *testing.T) {
	w := limited(t, limit("root", "cpu", 1000))
	p := in("", "p", 0, 100).Obj()
	w.shows(p)
	ref := refOf(p)
	expect := func(when string, want int64) {
		t.Helper()
		if got := w.used("root", "cpu"); got != want {
			t.Errorf("%s: %d used, want %d", when, got, want)
		}
	}

	expect("pending", 0)
	w.gate.ReserveQuota(ref)
	expect("with an order", 100)
	w.gate.Reserve(on(p, "n1"), wire.ModeEnforce)
	expect("reserved", 100)
	w.gate.Unreserve(p.UID)
	expect("no longer reserved, with an order", 100)
	w.gate.Reserve(on(p, "n1"), wire.ModeEnforce)
	w.gate.ReleaseQuota(p.UID)
	expect("reserved alone", 100)
	w.shows(p) // an event from before it was bound
	expect("shown pending", 100)
	w.shows(on(p, "n1"))
	expect("bound", 100)
	w.gate.Unreserve(p.UID)
	expect("bound, and its binding called off late", 100)
	finished := on(p, "n1")
	finished.Status.Phase = v1.PodSucceeded
	w.shows(finished)
	expect("ended", 0)
	w.deletes(finished)
	expect("gone", 0)
}

func TestAPreemptorWithAnOrderHasThePlaceThatNoOtherPodGets(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p, other, victim := in("", "p", high, 100).Obj(), in("", "o", high, 100).Obj(), on(in("", "v", low, 100).Obj(), "n1")
	w.shows(p, other, victim)
	w.rejected(p)
	w.gate.ReserveQuota(refOf(p))
	w.deletes(victim)

	w.rejected(other)
	if !w.enters(p) {
		t.Error("the preemptor does not get the place that was made for it")
	}
}

func TestAPreemptorThatWaitsForItsVictimsTakesItsPlaceOnce(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p, other, victim := in("", "p", high, 50).Obj(), in("", "o", low, 50).Obj(), on(in("", "v", low, 100).Obj(), "n1")
	w.shows(p, other, victim)
	w.gate.ReserveQuota(refOf(p))
	w.rejected(p) // in a cycle that came too early

	w.deletes(victim)

	if got := w.activated(); !slices.Equal(got, []string{"p"}) || !w.admits(other) {
		t.Errorf("activated %v, and the other pod is let in: %t", got, w.admits(other))
	}
}

func TestAPodThatCameFromElsewhereIsSeenWhenAPlaceIsReserved(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p := in("", "p", 0, 100).Obj()
	if w.gate.check(p, wire.ModeEnforce) != nil {
		t.Fatal("the queue is empty")
	}
	w.shows(on(in("", "other", 0, 50).Obj(), "n1"))

	if w.gate.Reserve(on(p, "n1"), wire.ModeEnforce) == nil {
		t.Error("reserved beyond max")
	}
}

// Case G-1 of docs/conformance.md, without a scheduler.
func TestPodsThatRaceIntoAQueueNeverTakeItAboveMax(t *testing.T) {
	w := limited(t, limit("root", "pods", 50))
	var racers sync.WaitGroup
	for i := range 200 {
		racers.Add(1)
		go func() {
			defer racers.Done()
			p := in("", fmt.Sprintf("p%d", i), int32(i%3), 10).Obj()
			if !w.enters(p) {
				return
			}
			if used := w.used("root", "pods"); used > 50 {
				t.Errorf("%d of 50 used", used)
			}
			if i%4 == 0 {
				w.gate.Unreserve(p.UID)
				return
			}
			w.shows(on(p, "n1"))
		}()
	}
	racers.Wait()

	if used := w.used("root", "pods"); used > 50 || used < 12 {
		t.Errorf("%d of 50 used", used)
	}
}

func TestNoGateStandsWhereThereAreNoQueuesOrItDoesNotApply(t *testing.T) {
	p := in("", "p", 0, 1).Obj()
	for name, passes := range map[string]func(*gateWorld) bool{
		"no queues":                 func(w *gateWorld) bool { w.gate.NoQueues(); return w.gate.check(p, wire.ModeEnforce) == nil },
		"the profile only observes": func(w *gateWorld) bool { return w.gate.check(p, wire.ModeObserve) == nil },
		"the profile is off":        func(w *gateWorld) bool { return w.gate.check(p, wire.ModeOff) == nil },
		"its namespace is exempt now": func(w *gateWorld) bool {
			w.exempt.Store(&[]string{"default"})
			return w.gate.check(p, wire.ModeEnforce) == nil
		},
	} {
		if w := limited(t, limit("root", "cpu", 0)); !passes(w) {
			t.Errorf("%s: rejected", name)
		}
	}
}

func TestWhatWaitsIsLetInWhenTheModeOrTheQueuesGo(t *testing.T) {
	for name, change := range map[string]func(*gateWorld){
		"the queues are taken away": func(w *gateWorld) { w.gate.NoQueues() },
		"the namespace becomes exempt": func(w *gateWorld) {
			w.exempt.Store(&[]string{"default"})
			w.gate.Reconsider()
		},
		"the max is raised": func(w *gateWorld) { w.limit(limit("root", "cpu", 10)) },
	} {
		w := limited(t, limit("root", "cpu", 5))
		w.rejected(in("", "p", 0, 10).Obj())

		change(w)

		if got := w.activated(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("%s: activated %v", name, got)
		}
	}
}

func TestOnlyWhatFitsIsActivatedByPriorityThenAge(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100), limit("root.a"), limit("root.b", "cpu", 20))
	victim := on(in("root.a", "v", 0, 100).Obj(), "n1")
	w.shows(victim)
	aged := func(p *st.PodWrapper, seconds int) *v1.Pod {
		return p.CreationTimestamp(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))).Obj()
	}
	for _, p := range []*v1.Pod{
		aged(in("root.a", "young", mid, 40), 9), aged(in("root.a", "old", mid, 40), 1), aged(in("root.a", "low", low, 20), 0),
		aged(in("root.b", "too-large-for-b", high, 30), 0), aged(in("root.b", "small", low, 20), 5),
	} {
		w.rejected(p)
	}

	w.deletes(victim)

	if got := w.activated(); !slices.Equal(got, []string{"old", "young", "low"}) {
		t.Errorf("activated %v", got)
	}
	if got := w.activated(); len(got) != 0 {
		t.Errorf("activated again %v", got)
	}
}

// activatedBefore is a full queue of which the one pod has gone, so that the first of two that waited has been activated, and not
// the second, which asks for so much.
func activatedBefore(t *testing.T, second int) (*gateWorld, *v1.Pod) {
	t.Helper()
	w := limited(t, limit("root", "cpu", 100))
	victim := on(in("", "v", 0, 100).Obj(), "n1")
	first, next := in("", "first", mid, 100).Obj(), in("", "second", low, second).Obj()
	w.shows(victim, first, next)
	w.rejected(first)
	w.rejected(next)
	w.deletes(victim)
	if got := w.activated(); !slices.Equal(got, []string{"first"}) {
		t.Fatalf("activated %v", got)
	}
	return w, first
}

func TestRoomThatAActivatedPodDoesNotTakeGoesToTheNext(t *testing.T) {
	for name, ends := range map[string]func(*gateWorld, *v1.Pod){
		"its cycle fails otherwise": func(w *gateWorld, p *v1.Pod) { w.gate.check(p, wire.ModeEnforce); w.gate.CycleFailed(p.UID) },
		"it is deleted":             func(w *gateWorld, p *v1.Pod) { w.deletes(p) },
		"it does not come": func(w *gateWorld, p *v1.Pod) {
			w.admits(p) // and many come to their cycles before it
			w.clock.Step(promiseLasts)
			w.gate.notify()
		},
		"something else keeps it from coming": func(w *gateWorld, _ *v1.Pod) { w.clock.Step(promiseLasts) },
	} {
		w, first := activatedBefore(t, 100)

		ends(w, first)

		got := w.activated()
		if name == "it does not come" {
			if !slices.Equal(got, []string{"first"}) {
				t.Errorf("%s: activated %v, want the first once more", name, got)
			}
			continue
		}
		if !slices.Equal(got, []string{"second"}) {
			t.Errorf("%s: activated %v, want the second", name, got)
		}
	}
}

func TestRoomThatAActivatedPodNoLongerNeedsAllOfGoesToTheNext(t *testing.T) {
	for name, ends := range map[string]func(*gateWorld, *v1.Pod){
		"it is kept out after all": func(w *gateWorld, p *v1.Pod) {
			w.shows(on(in("", "other", 0, 50).Obj(), "n1"))
			w.rejected(p)
		},
		"it gets no place after all": func(w *gateWorld, p *v1.Pod) {
			w.shows(on(in("", "other", 0, 50).Obj(), "n1"))
			if w.gate.Reserve(on(p, "n1"), wire.ModeEnforce) == nil {
				w.t.Fatal("reserved beyond max")
			}
		},
		"it asks for less by now": func(w *gateWorld, p *v1.Pod) {
			if !w.enters(in("", p.Name, mid, 50).Obj()) {
				w.t.Fatal("it does not fit")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, first := activatedBefore(t, 50)

			ends(w, first)

			if got := w.activated(); !slices.Equal(got, []string{"second"}) {
				t.Errorf("activated %v, want the second", got)
			}
		})
	}
}

func TestRoomThatAPodPassedForAndNeverTookGoesToTheNext(t *testing.T) {
	for range 20 { // in whichever order the waiting pods are checked
		w, first := activatedBefore(t, 100)
		if rejected := w.gate.check(first, wire.ModeEnforce); rejected != nil {
			t.Fatalf("rejected: %s", rejected.message)
		}

		w.clock.Step(promiseLasts)

		if got := w.activated(); !slices.Equal(got, []string{"second"}) {
			t.Fatalf("activated %v, want the second", got)
		}
	}
}

func TestADryRunEndsAsItBeganThoughTheQueuesChangeMeanwhile(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 100), limit("root.b"))
	w.shows(on(in("root.a", "v", low, 80).Obj(), "n1"))
	room := w.rejected(in("root.a", "p", high, 50).Obj())

	room.RemovePod("v")
	w.limit(limit("root"), limit("root.b"), limit("root.a", "memory", 1, "cpu", 100))
	fits := room.Fits()
	room.AddPod("v")

	if !fits || room.Fits() {
		t.Errorf("it fits without v: %t, with v: %t", fits, room.Fits())
	}
}

func TestAWaitingPodThatIsChangedIsLookedAtAgain(t *testing.T) {
	limits := []wire.QueueLimit{limit("root", "cpu", 100), limit("root.a", "cpu", 10), limit("root.b")}
	for name, before := range map[string]func(*gateWorld){
		"its queue is full":    func(*gateWorld) {},
		"it was promised room": func(w *gateWorld) { w.limit(limit("root"), limit("root.a"), limit("root.b", "cpu", 0)); w.activated() },
		"there are no limits":  func(w *gateWorld) { w.gate.NoQueues() },
	} {
		w := limited(t, limits...)
		p := in("root.a", "p", 0, 50).Obj()
		w.shows(p)
		w.rejected(p)
		if got := w.activated(); len(got) != 0 {
			t.Fatalf("activated %v", got)
		}
		before(w)

		moved := p.DeepCopy()
		moved.Labels["queue"] = "root.b"
		w.shows(moved)

		w.limit(limits...)
		w.clock.Step(activationBackoffInitial)
		if got := w.activated(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("%s: activated %v", name, got)
		}
	}
}

func TestUntilTheLimitsAreKnownNothingPassesAndThenWhatFits(t *testing.T) {
	w := newGateWorld(t)
	w.shows(on(in("", "a", 0, 60).Obj(), "n1"))
	w.gate.Assume(true, "because")
	for _, name := range []string{"p", "q"} {
		if r := w.rejected(in("", name, 0, 30).Obj()); r.reason != rejectedUnknown || !strings.Contains(r.message, "because") {
			t.Errorf("rejected as %s: %s", r.reason, r.message)
		}
	}
	if got := w.activated(); len(got) != 0 {
		t.Fatalf("activated %v", got)
	}

	w.limit(limit("root", "cpu", 100))

	// The second does not fit; its condition is to say so.
	if got := w.activated(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("activated %v", got)
	}
	if held, ok := w.heldPod("q"); !ok || held.message != "queue root: cpu 90m of 100m used, 30m asked" {
		t.Errorf("held %t, %q", ok, held.message)
	}
	if !w.enters(in("", "p", 0, 30).Obj()) || w.rejected(in("", "q", 0, 30).Obj()).reason != rejectedFull || len(w.activated()) != 0 {
		t.Error("not as after any other start")
	}
	for _, exist := range []bool{true, false} {
		if decided, _ := w.gate.Assume(exist, "no more"); decided {
			t.Error("a guess takes limits away that are in force")
		}
	}
}

func TestWhereUnknownLimitsLetPodsPassTheGateIsNotShut(t *testing.T) {
	w := newGateWorld(t)
	w.gate.passes = true

	if decided, shut := w.gate.Assume(true, "because"); !decided || shut || !w.admits(in("root.ml", "p", 0, 10).Obj()) {
		t.Errorf("decided %t, shut %t", decided, shut)
	}
}

// After any sequence of events usage is a recount of what is there.
func TestUsageIsARecountWhateverHappened(t *testing.T) {
	trees := [][]wire.QueueLimit{
		{limit("root", "cpu", 1000, "pods", 40), limit("root.a", "cpu", 300), limit("root.a.x", "cpu", 100), limit("root.a.y"), limit("root.b", "memory", 0)},
		{limit("root"), limit("root.a", "cpu", 250), limit("root.b", "cpu", 50), limit("root.b.x", "pods", 3)},
	}
	paths := []string{"root.a.x", "root.a.y", "root.b", "root.b.x", "root.a", "", "root.default"}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := limited(t, trees[0]...)
		pods, nodes, tree := map[types.UID]*v1.Pod{}, map[types.UID]bool{}, 0
		reserved, held := map[types.UID]bool{}, map[types.UID]bool{}
		fixed := map[types.UID]string{} // the queue that a pod named when it was placed
		for step := range 300 {
			name := fmt.Sprintf("p%d", random.IntN(30))
			uid := types.UID(name)
			p := pods[uid]
			switch action := random.IntN(9); {
			case p == nil:
				p = in(paths[random.IntN(len(paths))], name, int32(random.IntN(4)), random.IntN(60)).Obj()
				pods[uid] = p
				w.shows(p)
			case action == 0:
				delete(pods, uid)
				delete(nodes, uid)
				delete(reserved, uid)
				delete(held, uid)
				w.deletes(p)
			case action == 1:
				w.gate.ReserveQuota(refOf(p))
				held[uid] = true
			case action == 2:
				w.gate.ReleaseQuota(uid)
				delete(held, uid)
			case action == 3 && !nodes[uid]:
				if w.gate.Reserve(on(p, "n1"), wire.ModeEnforce) == nil {
					reserved[uid] = true
				}
			case action == 4:
				w.gate.Unreserve(uid)
				delete(reserved, uid)
			case action == 5:
				p = on(p, "n1")
				pods[uid], nodes[uid] = p, true
				delete(reserved, uid)
				w.shows(p)
			case action == 6:
				p = p.DeepCopy()
				p.Labels["queue"] = paths[random.IntN(len(paths))]
				pods[uid] = p
				w.shows(p)
			case action == 7:
				w.gate.check(p, wire.ModeEnforce)
				w.activated()
			case action == 8 && random.IntN(5) == 0:
				if tree = 1 - tree; random.IntN(2) == 0 {
					w.gate.NoQueues()
				} else {
					w.limit(trees[tree]...)
				}
			}
			if w.gate.usage.tree == nil && random.IntN(3) == 0 {
				w.limit(trees[tree]...)
			}

			recount := newQueueUsage()
			recount.setTree(treeOf(t, trees[tree]...))
			for uid := range fixed {
				if !nodes[uid] && !reserved[uid] {
					delete(fixed, uid)
				}
			}
			for uid, p := range pods {
				if nodes[uid] || reserved[uid] || held[uid] {
					wanted := demandOf(p)
					if nodes[uid] || reserved[uid] {
						if _, placed := fixed[uid]; !placed {
							fixed[uid] = wanted.asked
						}
						wanted.asked = fixed[uid]
					}
					recount.change(uid, func(m *member) {
						*m = member{demand: wanted, bound: nodes[uid], reserved: reserved[uid], held: held[uid]}
					})
				}
			}
			when := fmt.Sprintf("seed %d, step %d", seed, step)
			if w.gate.usage.tree == nil {
				continue
			}
			expectUsage(t, w.gate, recount, when)
			w.clock.Step(time.Duration(random.IntN(3000)) * time.Millisecond)
			if action := random.IntN(4); action == 0 {
				w.activated()
				expectNoneForgotten(t, w.gate, when)
			}
		}
	}
}

func expectUsage(t *testing.T, gate *Gate, want *queueUsage, when string) {
	t.Helper()
	gate.mu.Lock()
	defer gate.mu.Unlock()
	for i, q := range want.tree.queues {
		if !slices.Equal(gate.usage.used[i], want.used[i]) {
			t.Fatalf("%s: %s holds %v, want %v", when, q.path, gate.usage.used[i], want.used[i])
		}
		if len(gate.usage.byRank[i]) != len(want.byRank[i]) {
			t.Fatalf("%s: %s by priority %v, want %v", when, q.path, gate.usage.byRank[i], want.byRank[i])
		}
		for rank, held := range want.byRank[i] {
			if !slices.Equal(gate.usage.byRank[i][rank], held) {
				t.Fatalf("%s: %s at %d holds %v, want %v", when, q.path, rank, gate.usage.byRank[i][rank], held)
			}
		}
		for j := range want.tree.names {
			promised := gate.waiting.promisedTo(math.MinInt64, nil)(gate.usage.tree.queues[i], j)
			var sum int64
			for _, waiting := range gate.waiting.pods {
				for _, n := range waiting.needs {
					if waiting.promised && n.index == j && gate.usage.tree.queues[i].holds(waiting.leaf) {
						sum += n.value
					}
				}
			}
			if promised != sum {
				t.Fatalf("%s: %s has promised %d, its pods were promised %d", when, q.path, promised, sum)
			}
		}
	}
}

// expectNoneForgotten finds every waiting pod where a later round finds it, after one that left none due.
func expectNoneForgotten(t *testing.T, gate *Gate, when string) {
	t.Helper()
	gate.mu.Lock()
	defer gate.mu.Unlock()
	line, granted := gate.waiting, 0
	now := gate.clock.Now()
	if len(line.line) != len(line.pods) || !slices.IsSortedFunc(line.line, before) {
		t.Fatalf("%s: %d pods wait, and %d are in the line, or not in order", when, len(line.pods), len(line.line))
	}
	for uid, w := range line.pods {
		switch {
		case w.promised:
			granted++
			if line.isDue(w) || w.timer.IsZero() {
				t.Fatalf("%s: %s has a promise without an end, or may get another", when, uid)
			}
		case line.isDue(w):
			t.Fatalf("%s: %s is due after a round", when, uid)
		case !now.Before(w.timer):
			t.Fatalf("%s: %s is at rest until %s, and it is %s", when, uid, w.timer, now)
		case w.blocked == nil:
			if !line.backoffs[uid].until.Equal(w.timer) {
				t.Fatalf("%s: %s backs off until another time", when, uid)
			}
		case len(gate.usage.shortages(w.leaf, w.needs, gate.usage.placedOf(uid), line.promisedTo(int64(w.priority), w))) == 0:
			t.Fatalf("%s: %s fits and is at rest", when, uid)
		}
	}
	if granted != line.granted {
		t.Fatalf("%s: %d promises, %d counted", when, granted, line.granted)
	}
}

// busy is a gate with 1,000 queues, three deep, and 20,000 pods.
func busy(b *testing.B) (*gateWorld, func(i int) *v1.Pod) {
	limits := []wire.QueueLimit{limit("root", "cpu", 1<<40, "memory", 1<<50, "pods", 1<<30)}
	for i := range 10 {
		limits = append(limits, limit(fmt.Sprintf("root.q%d", i), "cpu", 1<<40))
		for j := range 10 {
			limits = append(limits, limit(fmt.Sprintf("root.q%d.q%d", i, j), "memory", 1<<50))
			for k := range 9 {
				limits = append(limits, limit(fmt.Sprintf("root.q%d.q%d.q%d", i, j, k), "cpu", 1<<40, "pods", 1<<30))
			}
		}
	}
	w := limited(b, limits...)
	requests := map[v1.ResourceName]string{"cpu": "100m", "memory": "128Mi"}
	numbered := func(i int) *v1.Pod {
		return pod(fmt.Sprintf("p%d", i), "", int32(i%10), requests).Label("queue", fmt.Sprintf("root.q%d.q%d.q%d", i%10, i/10%10, i/100%9)).Obj()
	}
	for i := range 20000 {
		w.shows(on(numbered(i), "n1"))
	}
	return w, numbered
}

// What the gate adds to a scheduling cycle: PreFilter and Reserve; taking the place back is in it, too.
func BenchmarkQueueGateCycle(b *testing.B) {
	w, numbered := busy(b)
	p := numbered(20001)
	placed := on(p, "n1")
	b.ResetTimer()
	for range b.N {
		w.gate.check(p, wire.ModeEnforce)
		w.gate.Reserve(placed, wire.ModeEnforce)
		w.gate.Unreserve(p.UID)
	}
}

// What a pod that comes and goes costs the informer's goroutine.
func BenchmarkQueueGateEvents(b *testing.B) {
	w, numbered := busy(b)
	placed := on(numbered(20001), "n1")
	b.ResetTimer()
	for range b.N {
		w.gate.PodChanged(placed)
		w.gate.PodDeleted(placed.UID)
	}
}

// What a cycle costs where no queues are configured.
func BenchmarkQueueGateWithoutQueues(b *testing.B) {
	w := newGateWorld(b)
	w.gate.NoQueues()
	p := in("", "p", 0, 100).Obj()
	b.ResetTimer()
	for range b.N {
		w.gate.check(p, wire.ModeEnforce)
	}
}

// crowded is a gate with a full queue that holds so many pods, all of which have been checked.
func crowded(t testing.TB, waiting int) *gateWorld {
	w := limited(t, limit("root"), limit("root.a", "cpu", 100), limit("root.b", "cpu", 100))
	w.shows(on(in("root.a", "v", mid, 100).Obj(), "n1"))
	for i := range waiting {
		w.admits(in("root.a", fmt.Sprintf("p%06d", i), low, 50).Obj())
	}
	for range 2 + waiting/maxChecks {
		w.activated()
	}
	return w
}

func TestPodsThatRanBeforeThereWereQueuesCountInThem(t *testing.T) {
	w := newGateWorld(t)
	w.gate.NoQueues()
	w.shows(on(in("root.a", "one", low, 40).Obj(), "n1"), on(in("root.a", "two", low, 40).Obj(), "n1"))
	p := in("root.a", "p", low, 20).Obj()
	w.shows(p)
	if !w.admits(p) {
		t.Fatal("a pod is held where there are no queues")
	}

	w.limit(limit("root"), limit("root.a", "cpu", 100))

	if decided, _ := w.gate.Assume(false, ""); decided {
		t.Error("a guess takes the limits away")
	}
	if w.admits(in("root.a", "large", low, 30).Obj()) || !w.enters(p) {
		t.Error("the pods that ran before do not count")
	}
}

func TestPodsCountInTheQueuesOfOtherLimits(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 100))
	w.shows(on(in("root.a", "one", low, 40).Obj(), "n1"), on(in("root.a", "two", low, 40).Obj(), "n1"))
	if w.admits(in("root.a", "large", low, 30).Obj()) || !w.admits(in("root.a", "small", low, 20).Obj()) {
		t.Error("not by the first limits")
	}

	w.limit(limit("root"), limit("root.a", "cpu", 200))

	if !w.enters(in("root.a", "large", low, 30).Obj()) {
		t.Error("the new limits are not in force")
	}
}

func TestWhatChangesBeforeLimitsAreKnownCountsAsItIsThen(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newGateWorld(t)
		w.gate.NoQueues()
		if again {
			w.limit(limit("root", "cpu", 1<<20))
		}
		goes, ends, grows := on(in("", "goes", low, 1).Obj(), "n1"), on(in("", "ends", low, 10).Obj(), "n1"), on(in("", "grows", low, 100).Obj(), "n1")
		assumed, released, held := in("", "assumed", low, 1000).Obj(), in("", "released", low, 10_000).Obj(), in("", "held", low, 100_000).Obj()
		w.shows(goes, ends, grows, assumed, released, held)
		w.gate.Reserve(on(released, "n1"), wire.ModeEnforce)

		w.deletes(goes)
		over := ends.DeepCopy()
		over.Status.Phase = v1.PodSucceeded
		w.shows(over, on(in("", "grows", low, 200).Obj(), "n1"), on(in("", "new", low, 500_000).Obj(), "n1"))
		w.gate.Reserve(on(assumed, "n1"), wire.ModeEnforce)
		w.gate.Unreserve(released.UID)
		w.gate.ReserveQuota(refOf(held))
		w.limit(limit("root", "cpu", 1<<30))

		if got := w.used("root", "cpu"); got != 601_200 {
			t.Errorf("again %t: %d in use", again, got)
		}
	}
}

func TestAPreemptorThatTheInformerShowsLaterCountsFromThenOn(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p := in("", "p", high, 60).Obj()
	w.gate.ReserveQuota(refOf(p))

	w.shows(p)

	if used := w.used("root", "cpu"); used != 60 {
		t.Errorf("%d in use", used)
	}
	w.gate.ReleaseQuota(p.UID)
	if used := w.used("root", "cpu"); used != 0 {
		t.Errorf("%d in use after its order", used)
	}
}

// What one round of the gate costs while it holds so many pods, and with it every PreEnqueue that waits for its lock:
// where nothing has changed, where another queue holds less, and where the one that they wait for does.
func BenchmarkQueueGateRound(b *testing.B) {
	for _, waiting := range []int{1000, 50000} {
		for name, change := range map[string]func(w *gateWorld){
			"nothing": func(*gateWorld) {},
			"another": func(w *gateWorld) {
				w.shows(on(in("root.b", "x", mid, 10).Obj(), "n1"))
				w.deletes(in("root.b", "x", mid, 10).Obj())
			},
			"theirs": func(w *gateWorld) {
				w.shows(on(in("root.a", "x", mid, 10).Obj(), "n1"))
				w.deletes(in("root.a", "x", mid, 10).Obj())
			},
		} {
			b.Run(fmt.Sprintf("waiting=%d/changed=%s", waiting, name), func(b *testing.B) {
				w := crowded(b, waiting)
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					change(w)
					b.StartTimer()
					w.gate.due(true)
					w.gate.State()
				}
			})
		}
	}
}

// exemptPods are pods of a full queue that the gate never holds.
func exemptPods() map[string]*v1.Pod {
	return map[string]*v1.Pod{
		"a system priority":  in("root.ml", "critical", systemPriority, 10).Obj(),
		"a system namespace": in("root.ml", "dns", 0, 10).Namespace("kube-system").Obj(),
	}
}

func TestPodsThatAClusterNeedsToStartPassWhileTheLimitsAreNotKnown(t *testing.T) {
	for name, pod := range exemptPods() {
		w := newGateWorld(t)
		w.gate.Assume(true, "because")

		if rejected := w.gate.check(pod, wire.ModeEnforce); rejected != nil {
			t.Errorf("%s: held: %s", name, rejected.message)
		}
	}
}

func TestPodsThatAClusterNeedsToStartAreCountedAndNeverHeldByTheirQueue(t *testing.T) {
	for name, pod := range exemptPods() {
		w := limited(t, limit("root"), limit("root.ml", "cpu", 5))

		if !w.enters(pod) {
			t.Errorf("%s: held", name)
		}
		if used := w.used("root.ml", "cpu"); used != 10 {
			t.Errorf("%s: counts as %d, want 10", name, used)
		}
		if rejected := w.rejected(in("root.ml", "other", systemPriority-1, 1).Obj()); !strings.Contains(rejected.message, "cpu 10m of 5m used") {
			t.Errorf("%s: another is told %q", name, rejected.message)
		}
	}
}

func TestAPodThatTakesItsRoomAndReturnsItIsActivatedWithABackOff(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	victim := on(in("", "v", 0, 100).Obj(), "n1")
	p := in("", "p", mid, 100).Obj() // of a group that does not fit as a whole
	w.shows(victim, p)
	w.rejected(p)
	w.deletes(victim)

	activations := 0
	for range 600 { // a minute
		for range w.activated() {
			activations++
			if !w.enters(p) {
				t.Fatal("it does not fit")
			}
			w.rejected(in("", "q", low, 10).Obj())
			w.gate.Unreserve(p.UID)
			w.deletes(in("", "q", low, 10).Obj())
			w.shows(victim)
			w.rejected(p)
			w.deletes(victim)
		}
		w.clock.Step(100 * time.Millisecond)
	}

	if activations < 8 || activations > 11 { // after 0, 1, 3, 7, 15, 25, 35, 45 and 55 s
		t.Errorf("activated %d times in a minute", activations)
	}
	w.shows(on(p, "n1"))
	if len(w.gate.waiting.backoffs) != 0 {
		t.Error("the back-off of a placed pod is kept")
	}
}

func TestAPodHeldForAPromiseComesToACycleOnceTheRoomIsTaken(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	q, p := in("", "q", high, 50).Obj(), in("", "p", high, 50).Obj()
	w.shows(on(in("", "v", low, 50).Obj(), "n1"), q, p)
	w.activated() // what limit left to be checked
	if !w.admits(q) {
		t.Fatal("q fits")
	}
	if w.admits(p) {
		t.Fatal("p came to a cycle already")
	}
	w.activated()
	if !w.enters(q) {
		t.Fatal("q")
	}
	w.shows(on(q, "n1"))
	for range 20 {
		if got := w.activated(); slices.Contains(got, "p") {
			return
		}
		w.clock.Step(10 * time.Second)
	}
	t.Errorf("p may preempt v and is not activated for 200 s")
}

func TestAPodThatWasTriedIsTriedAgainWhenLimitsOrUsageChange(t *testing.T) {
	for name, changes := range map[string]func(w *gateWorld, equal *v1.Pod){
		"limits": func(w *gateWorld, _ *v1.Pod) { w.limit(limit("root", "cpu", 110)) },
		"usage":  func(w *gateWorld, equal *v1.Pod) { w.deletes(equal) },
	} {
		w := limited(t, limit("root", "cpu", 100))
		equal := on(in("", "e", high, 20).Obj(), "n1")
		p := in("", "p", high, 50).Obj()
		w.shows(on(in("", "v1", low, 30).Obj(), "n1"), on(in("", "v2", low, 50).Obj(), "n1"), equal, p)
		w.activated()
		if !w.admits(p) || w.rejected(p).reason != rejectedMayHelp {
			t.Fatal("it may not preempt")
		}
		w.gate.Tried(p.UID)
		if w.admits(p) {
			t.Fatal("not held")
		}
		w.activated()
		w.clock.Step(20 * time.Second)

		changes(w, equal)

		if got := w.activated(); !slices.Contains(got, "p") {
			t.Errorf("%s: less has to go for p than before, and it is not tried", name)
		}
	}
}

func TestANewPodTakesNoRoomThatAnotherHasWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		priority int32
		first    string
	}{"a lower one": {low, "waits"}, "a younger one": {mid, "waits"}, "a higher one": {high, "new"}} {
		w := limited(t, limit("root"), limit("root.a", "cpu", 100), limit("root.b", "cpu", 100))
		leaves, waits := on(in("root.a", "leaves", low, 100).Obj(), "n1"), in("root.a", "waits", mid, 100).Obj()
		w.shows(leaves, waits)
		w.admits(waits)
		w.activated()
		w.deletes(leaves)

		newcomer := in("root.a", "new", test.priority, 100).CreationTimestamp(metav1.NewTime(start)).Obj()
		atOnce := w.admits(newcomer)

		if got := w.activated(); atOnce != (test.first == "new") || !atOnce && !slices.Equal(got, []string{"waits"}) {
			t.Errorf("%s: it is let in at once: %t; activated %v", name, atOnce, got)
		}
		if !w.admits(in("root.b", "elsewhere", low, 100).Obj()) {
			t.Errorf("%s: a pod of another queue waits for them", name)
		}
	}
}

func TestAPodThatIsShortInTwoQueuesIsTriedWhenTheUpperAloneHoldsLess(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100), limit("root.a", "cpu", 60), limit("root.b"))
	elsewhere, p := on(in("root.b", "elsewhere", high, 20).Obj(), "n1"), in("root.a", "p", high, 60).Obj()
	w.shows(on(in("root.a", "v", low, 60).Obj(), "n1"), on(in("root.b", "stays", high, 30).Obj(), "n1"), elsewhere)
	if w.rejected(p).reason != rejectedFull {
		t.Fatal("it may preempt already")
	}

	w.deletes(elsewhere)

	if got := w.activated(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("activated %v, want p, for which v may go now", got)
	}
}

func TestAPodThatBacksOffIsTriedOnceThatIsOver(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	first, second := on(in("", "first", high, 10).Obj(), "n1"), on(in("", "second", high, 10).Obj(), "n1")
	p := in("", "p", high, 50).Obj()
	w.shows(on(in("", "v", low, 80).Obj(), "n1"), first, second)
	fails := func() {
		if w.rejected(p).reason != rejectedMayHelp {
			t.Fatal("it may not preempt")
		}
		w.gate.Tried(p.UID)
	}
	fails()
	w.deletes(first)
	if got := w.activated(); !slices.Equal(got, []string{"p"}) {
		t.Fatalf("activated %v", got)
	}
	fails()

	w.deletes(second)

	if got := w.activated(); len(got) != 0 {
		t.Errorf("activated %v while it backs off", got)
	}
	w.clock.Step(activationBackoffInitial)
	if got := w.activated(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("activated %v, want p: less has to go for it than before", got)
	}
}

func TestAPodThatIsKeptOutIsCheckedInFiveMinutesThoughNothingElseHappens(t *testing.T) {
	w := limited(t, limit("root", "cpu", 100))
	p := in("", "p", high, 50).Obj()
	w.shows(on(in("", "v", low, 100).Obj(), "n1"), p)
	w.activated()
	<-w.gate.changed

	w.rejected(p)
	w.gate.Tried(p.UID)

	select {
	case <-w.gate.changed:
	default:
		t.Fatal("no round takes note of when it is to be checked")
	}
	_, next := w.gate.due(true)
	if want := w.clock.Now().Add(heldFlush); !next.Equal(want) {
		t.Errorf("the next round is at %s, want %s", next, want)
	}
	w.clock.Step(heldFlush)
	if got := w.activated(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("activated %v", got)
	}
}

func TestARoundLooksAtSoManyPodsOnlyAndMissesNone(t *testing.T) {
	const waiting = 3*maxChecks + 1
	w := limited(t, limit("root", "cpu", 100))
	v := on(in("", "v", mid, 100).Obj(), "n1")
	w.shows(v)
	for i := range waiting {
		cpu := 200 // more than there can be
		if i == waiting-1 {
			cpu = 100
		}
		p := in("", fmt.Sprintf("p%05d", i), low, cpu).Obj()
		w.shows(p)
		w.admits(p)
	}
	for range 4 {
		w.activated()
	}
	w.deletes(v)

	for round := range 8 {
		got, next := w.gate.due(true)
		// Room is made again and again, which lets all be due anew.
		w.shows(on(in("", "small", mid, 1).Obj(), "n1"))
		w.deletes(in("", "small", mid, 1).Obj())
		switch {
		case len(got) == 1 && round > 0:
			return
		case len(got) > 0:
			t.Fatalf("%v activated in round %d", got, round)
		case next.After(w.clock.Now()) || next.IsZero():
			t.Fatalf("the next round is at %v", next)
		}
	}
	t.Error("the last pod, which fits, is not activated")
}

func TestAStandbysPromisesLastUntilItLeads(t *testing.T) {
	w := limited(t, limit("root", "pods", 1))
	first, second := in("", "first", 0, 1).Obj(), in("", "second", 0, 1).Obj()
	w.shows(first, second)
	if !w.admits(first) || w.admits(second) {
		t.Fatal("not the first alone is let in")
	}

	for range 10 {
		w.clock.Step(promiseLasts)
		if pods, _ := w.gate.due(false); len(pods) != 0 {
			t.Fatalf("activated %v", pods)
		}
	}

	w.clock.Step(promiseLasts)
	if got := w.activated(); len(got) != 1 {
		t.Errorf("activated %v once it leads", got)
	}
}

// pod makes a pod whose UID is its name; on is its node, empty for a pending one.
func pod(name, on string, priority int32, requests map[v1.ResourceName]string) *st.PodWrapper {
	return st.MakePod().Namespace("default").SchedulerName("default-scheduler").Name(name).UID(name).Node(on).Priority(priority).Req(requests).StartTime(metav1.NewTime(time.Unix(1, 0)))
}

func TestALabelThatIsChangedOnARunningPodFreesNoQuota(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 100), limit("root.b"))
	w.shows(on(in("root.a", "runs", low, 100).Obj(), "n1"))

	w.shows(on(in("root.b", "runs", low, 100).Obj(), "n1"), on(in("", "runs", low, 100).Obj(), "n1"))

	if got := w.rejected(in("root.a", "waits", low, 100).Obj()); got == nil {
		t.Error("the pod passes: the relabelled one no longer counts in its queue")
	}
}

func TestAPodThatNoQueueTakesIsHeldAndSaysWhy(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 100), limit(unplacedQueue, "pods", 0))
	w.shows(on(in("nonsense", "runs", low, 1).Obj(), "n1"))

	got := w.rejected(in("nonsense", "waits", high, 1).Obj())
	if got == nil || got.reason != rejectedFull || !strings.Contains(got.message, "no queue takes the pod") {
		t.Errorf("rejected with %+v, want that no queue takes it", got)
	}
}

// How long PreEnqueue waits at most while limits are put in force over 150,000 running pods: first, and again.
func BenchmarkQueueGateCountsAllPods(b *testing.B) {
	const pods = 150_000
	stored := make([]*v1.Pod, pods)
	for i := range stored {
		stored[i] = on(in(fmt.Sprintf("root.q%d", i%10), fmt.Sprintf("p%d", i), int32(i%10), 100).Obj(), "n1")
	}
	for _, again := range []bool{false, true} {
		b.Run(fmt.Sprintf("again=%t", again), func(b *testing.B) {
			var longest time.Duration
			for b.Loop() {
				b.StopTimer()
				w := newGateWorld(b)
				w.gate.Assume(true, "no planner has sent them")
				for _, p := range stored {
					w.gate.PodChanged(p)
				}
				limits := []wire.QueueLimit{limit("root", "cpu", 1<<40)}
				for i := range 10 {
					limits = append(limits, limit(fmt.Sprintf("root.q%d", i), "cpu", 1<<40))
				}
				if again {
					w.limit(limits...)
				}
				var ended atomic.Bool
				var waits sync.WaitGroup
				waits.Go(func() {
					p := in("root.q0", "new", low, 1).Obj()
					for !ended.Load() {
						asked := time.Now()
						w.gate.Admit(p, wire.ModeEnforce)
						longest = max(longest, time.Since(asked))
						time.Sleep(50 * time.Microsecond)
					}
				})
				b.StartTimer()
				w.limit(limits...)
				b.StopTimer()
				ended.Store(true)
				waits.Wait()
				b.StartTimer()
			}
			b.ReportMetric(float64(longest.Microseconds()), "µs/longest-wait")
		})
	}
}

func TestARoundChecksAsManyPodsAndNoMoreHoweverManyWait(t *testing.T) {
	for waiting, want := range map[int]int{maxChecks / 2: maxChecks / 2, maxChecks: maxChecks, 5 * maxChecks: maxChecks} {
		w := crowded(t, waiting)
		w.shows(on(in("root.a", "x", mid, 10).Obj(), "n1"))
		w.deletes(in("root.a", "x", mid, 10).Obj()) // the queue that all wait for has come to hold less

		w.gate.due(true)

		checked := 0
		for _, one := range w.gate.waiting.pods {
			if one.checked == w.gate.waiting.ticks {
				checked++
			}
		}
		if checked != want {
			t.Errorf("%d of %d waiting pods were checked, want %d", checked, waiting, want)
		}
	}
}

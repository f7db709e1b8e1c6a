package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// Sizes of the benchmarks: clusters, and what is under way in them.
var clusterSizes = []int{1000, 5000, 15000}

const (
	benchNominated = 40 // pods that the API shows as nominated
	benchAssumed   = 40
	benchOrders    = 5 // alive, of three victims each
	benchRequestID = "req-01jv0000000000000000000000"
)

// instantBus answers each plan request at once, with three candidates of three victims: what is left is the
// plugin's own time.
type instantBus struct {
	*fakeBus
	encoded []byte
}

func (b *instantBus) Request(_ context.Context, _ string, data []byte) ([]byte, error) {
	_, id, _ := bytes.Cut(data, []byte(`"requestId":"`))
	id, _, _ = bytes.Cut(id, []byte(`"`))
	return bytes.Replace(b.encoded, []byte(benchRequestID), id, 1), nil
}

// Ask stores nothing: the commit of a preemption is no part of it.
func (b *instantBus) Ask(context.Context, string, []byte) ([]byte, error) {
	return nil, natsbus.ErrNotSent
}

// benched is a cluster in the middle of many preemptions, and a preemptor that no node has room for.
type benched struct {
	*world
	preemptor *v1.Pod
	statuses  *framework.NodeToStatus
	reply     []byte
}

// newBenched makes a cluster of so many nodes, each of which rejects the preemptor for its pods alone but the
// first few, which removing pods does not help.
func newBenched(b *testing.B, size, hopeless int) *benched {
	b.Helper()
	listed := []*v1.Node{node("n0"), node("n1"), node("n2")}
	var given setup
	for i := len(listed); i < size; i++ {
		given.unlisted = append(given.unlisted, node(fmt.Sprintf("n%d", i)))
	}
	reply := &wire.PlanReply{APIVersion: wire.APIVersion, RequestID: benchRequestID, Status: wire.StatusCandidates, SnapshotRevision: 4711,
		Planner: "planner-0_1_a1b2c3d4", DecisionID: "dec-01jv0000000000000000000000"}
	preemptor := pod("preemptor", "", 100, whole).UID("7f8b6c1e-0000-4000-8000-00000000ffff").Obj()
	pods := []*v1.Pod{preemptor}
	for i, n := range listed {
		c := wire.Candidate{Node: n.Name}
		for j, request := range []map[v1.ResourceName]string{small, medium, medium} {
			p := pod(fmt.Sprintf("low-%d-%d", i, j), n.Name, 1, request).Obj()
			pods = append(pods, p)
			c.Removable = append(c.Removable, wire.Removable{UID: string(p.UID), Rule: verify.RuleLowerPriority, Victim: true})
		}
		reply.Candidates = append(reply.Candidates, c)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	ctx := klog.NewContext(context.Background(), logger)
	w := &benched{world: buildWorld(b, ctx, given, listed, pods...), preemptor: preemptor, statuses: framework.NewDefaultNodeToStatus()}
	e := w.plugin.engine
	reply.Offer = "offer"
	encoded, err := wire.Encode(reply)
	if err != nil {
		b.Fatal(err)
	}
	w.reply = encoded
	instant := &instantBus{fakeBus: newFakeBus(), encoded: encoded}
	e.planner.Bus, e.committer.Bus = instant, instant
	ended, cancel := context.WithCancel(ctx)
	cancel()
	e.life = ended // nothing is committed

	uid := func(i int) string { return fmt.Sprintf("7f8b6c1e-0000-4000-8000-%012d", i*7919%100000) }
	for i := range benchNominated {
		p := pod(fmt.Sprintf("nominated-%d", i), "", 10, small).UID(uid(i)).Obj()
		p.Status.NominatedNodeName = fmt.Sprintf("n%d", i)
		e.placements.Observe(p)
	}
	for i := range benchAssumed {
		e.placements.Assume(pod(fmt.Sprintf("assumed-%d", i), "", 10, small).UID(uid(1000+i)).Obj(), fmt.Sprintf("n%d", i))
	}
	now := time.Now()
	for i := range benchOrders {
		order := &orders.Order{OrderID: wire.NewOrderID(now), Preemptor: wire.PodRef{Namespace: "default", Name: fmt.Sprintf("preemptor-%d", i), UID: uid(2000 + i)},
			Node: fmt.Sprintf("n%d", 100+i), CreatedAt: now, OpensAt: now.Add(time.Hour)}
		for j := range 3 {
			order.Victims = append(order.Victims, types.UID(uid(3000+3*i+j)))
		}
		e.inflight.Begin(order)
	}
	for i, n := range w.nodes {
		code := fwk.Unschedulable
		if i < hopeless {
			code = fwk.UnschedulableAndUnresolvable
		}
		w.statuses.Set(n.Node().Name, fwk.NewStatus(code, "Insufficient cpu"))
	}
	return w
}

// BenchmarkPostFilter is the plugin's own time of one preemption, from PostFilter's entry until the pod is
// nominated: all but the planner, NATS and the commit, which comes later.
func BenchmarkPostFilter(b *testing.B) {
	for _, size := range clusterSizes {
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			w := newBenched(b, size, 0)
			state := framework.NewCycleState()
			if _, status, _ := w.framework.RunPreFilterPlugins(w.ctx, state, w.preemptor); !status.IsSuccess() {
				b.Fatal(status)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, status := w.plugin.PostFilter(w.ctx, state, w.preemptor, w.statuses); !status.IsSuccess() {
					b.Fatal(status)
				}
				b.StopTimer()
				w.plugin.engine.inflight.Abandon(w.entry(w.preemptor.UID).OrderID)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkPlanRequest is the question put together and encoded.
func BenchmarkPlanRequest(b *testing.B) {
	w := newBenched(b, 1000, 0)
	b.ReportAllocs()
	for b.Loop() {
		known, err := w.plugin.known()
		if err != nil {
			b.Fatal(err)
		}
		q := ask.Question{Mode: wire.ModeEnforce, Classes: ask.One(w.preemptor, ask.Potential{Nodes: wire.NodeSelection{AllBut: true}}), Candidates: firstCandidates}
		request, err := q.Request(known)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := wire.Encode(request); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodePlanReply is the answer held to the contract and decoded.
func BenchmarkDecodePlanReply(b *testing.B) {
	w := newBenched(b, 1000, 0)
	b.ReportAllocs()
	b.SetBytes(int64(len(w.reply)))
	for b.Loop() {
		if _, err := wire.DecodeVersioned[wire.PlanReply](w.reply); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlacements is the list of nominated and assumed pods.
func BenchmarkPlacements(b *testing.B) {
	w := newBenched(b, 1000, 0)
	e := w.plugin.engine
	b.ReportAllocs()
	for b.Loop() {
		e.placements.Lists(e.inflight.Nominated())
	}
}

// BenchmarkPotentialNodes is the reading of the cycle's statuses, and the naming of the nodes in the question.
func BenchmarkPotentialNodes(b *testing.B) {
	for _, size := range clusterSizes {
		for name, hopeless := range map[string]int{"all": 0, "nine-tenths": size / 10, "a-tenth": size - size/10} {
			b.Run(fmt.Sprintf("nodes=%d/potential=%s", size, name), func(b *testing.B) {
				w := newBenched(b, size, hopeless)
				lister := w.framework.SnapshotSharedLister().NodeInfos()
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := ask.PotentialNodes(w.statuses, lister, true); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFilterWithoutColumn is one try of a pod on full nodes of which a filter that the planner does not know takes one, or
// none, with nothing remembered: the thread's time and the requests.
func BenchmarkFilterWithoutColumn(b *testing.B) {
	const size = 5000
	for name, takes := range map[string][]string{"one": {"n4999"}, "none": nil} {
		b.Run("passes="+name, func(b *testing.B) {
			p := pod("p", "", high, large).Obj()
			pods := []*v1.Pod{p}
			var nodes []*v1.Node
			for i := range size {
				nodes = append(nodes, node(fmt.Sprintf("n%d", i)))
				pods = append(pods, pod(fmt.Sprintf("on-n%d", i), fmt.Sprintf("n%d", i), low, whole).Obj())
			}
			ctx := klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
			w := buildWorld(b, ctx, setup{filters: withLicences(takes)}, nodes, pods...)
			e := w.plugin.engine
			w.bus.plan = ranksByName(nodes)
			ended, cancel := context.WithCancel(ctx)
			cancel()
			e.life = ended // nothing is committed
			statuses := framework.NewDefaultNodeToStatus()
			statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"))
			state, tries, nominated := w.state(p), 0, 0
			for b.Loop() {
				if _, status := w.plugin.PostFilter(w.ctx, state, p, statuses); status.IsSuccess() {
					nominated++
					e.inflight.Abandon(w.entry(p.UID).OrderID)
				}
				tries++
				b.StopTimer()
				e.verified.failures.Forget(verify.ClassOf(p))
				e.verified.budget = &verify.Budget{}
				b.StartTimer()
			}
			b.ReportMetric(float64(len(w.bus.requests))/float64(tries), "requests/op")
			b.ReportMetric(float64(nominated)/float64(tries), "nominated/op")
		})
	}
}

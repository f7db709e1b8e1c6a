package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

// hostileReplies are answers of a planner that means harm or has lost its mind. The node n1 holds a (low),
// b (higher than the preemptor); n2 holds c (low); each is full.
var hostileReplies = map[string]func(request *wire.PlanRequest) []byte{
	"nothing":               func(*wire.PlanRequest) []byte { return nil },
	"random bytes":          func(*wire.PlanRequest) []byte { return []byte("\x00\xff\xfe{") },
	"another shape":         func(*wire.PlanRequest) []byte { return []byte(`[1,2,3]`) },
	"deeply nested":         func(*wire.PlanRequest) []byte { return bytes.Repeat([]byte("["), 500_000) },
	"huge":                  func(*wire.PlanRequest) []byte { return bytes.Repeat([]byte(" "), wire.MaxBytes+1) },
	"another version":       raw(`{"apiVersion":"makeway.dev/v2"}`, ""),
	"another request":       raw(`"status":"candidates"`, `{"node":"n1","removable":[`+removable("a")+`]}`, "req-of-another"),
	"an unknown status":     raw(`"status":"perhaps"`, `{"node":"n1","removable":[`+removable("a")+`]}`),
	"nodes that are not":    raw(`"status":"candidates"`, `{"node":"nowhere","removable":[`+removable("a")+`]}`),
	"victims elsewhere":     raw(`"status":"candidates"`, `{"node":"n1","removable":[`+removable("c")+`]}`),
	"victims that are not":  raw(`"status":"candidates"`, `{"node":"n1","removable":[`+removable("nobody")+`]}`),
	"a higher priority":     raw(`"status":"candidates"`, `{"node":"n1","removable":[`+removable("b")+`]}`),
	"an unknown rule":       raw(`"status":"candidates"`, `{"node":"n2","removable":[{"uid":"c","rule":"because","victim":true}]}`),
	"one victim twice":      raw(`"status":"candidates"`, `{"node":"n2","removable":[`+removable("c")+`,`+removable("c")+`]}`),
	"awaited by hearsay":    raw(`"status":"candidates"`, `{"node":"n1","awaited":[{"uid":"b","orderId":"ord-1"}]}`),
	"awaited twice":         raw(`"status":"candidates"`, `{"node":"n1","awaited":[{"uid":"b","orderId":"o"},{"uid":"b","orderId":"o"}]}`),
	"the preemptor itself":  raw(`"status":"candidates"`, `{"node":"n1","removable":[`+removable("p")+`]}`),
	"a number out of range": raw(`"unmodelledTotal":1e99,"status":"candidates"`, `{"node":"n2","removable":[`+removable("c")+`]}`),
	"half a million nodes":  raw(`"status":"candidates"`, strings.TrimSuffix(strings.Repeat(`{"node":"n1","removable":[`+removable("b")+`]},`, 15_000), ",")),
}

func removable(uid string) string {
	return `{"uid":"` + uid + `","rule":"lower-priority","victim":true}`
}

// raw makes an answer of some fields and some candidates, to the request unless another is named.
func raw(fields, candidates string, to ...string) func(*wire.PlanRequest) []byte {
	return func(request *wire.PlanRequest) []byte {
		if candidates == "" {
			return []byte(fields)
		}
		id := append(to, request.RequestID)[0]
		return fmt.Appendf(nil, `{"apiVersion":"makeway.dev/v1","requestId":%q,"planner":"hostile",%s,"candidates":[%s]}`, id, fields, candidates)
	}
}

func TestNoHostileReplyNominatesOrPanicsOrTakesLong(t *testing.T) {
	for name, answer := range hostileReplies {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", mid, large).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1"), node("n2")}, p,
				pod("a", "n1", low, small).Obj(), pod("b", "n1", high, large).Obj(), pod("c", "n2", low, large).Obj())
			w.bus.raw = answer

			start := time.Now()
			result, status := w.cycle(p)

			if took := time.Since(start); took > verifyTimeout+3*w.plugin.args.PlanTimeout.Duration {
				t.Errorf("it took %s", took)
			}
			if status.IsSuccess() || (result != nil && result.NominatingInfo != nil && result.NominatedNodeName != "") {
				t.Errorf("nominated: %+v, %v", result, status)
			}
			if e := w.entry(p.UID); e != nil {
				t.Errorf("an order was planned: %+v", e)
			}
			if strings.Contains(status.Message(), "panic") {
				t.Errorf("status %v", status)
			}
			if len(status.Message()) > 4096 {
				t.Errorf("a message of %d bytes", len(status.Message()))
			}
		})
	}
}

func TestARefusalsTextIsCutBeforeItReachesTheApi(t *testing.T) {
	p := pod("p", "", high, large).Obj()
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", mid, large).Obj())
	w.bus.plan = func(*wire.PlanRequest) (*wire.PlanReply, error) {
		return &wire.PlanReply{Status: wire.StatusRefused, Refusal: &wire.Refusal{Reason: "Because", Message: strings.Repeat("é", 100_000)}}, nil
	}

	_, status := w.cycle(p)

	if len(status.Message()) > 2*wire.MostOfMessage || !strings.Contains(status.Message(), "é…") {
		t.Errorf("a message of %d bytes", len(status.Message()))
	}
}

// hostileOrders are changes that make of a committed order one that must not be adopted.
func TestAnOrderThatIsNotThisClustersOrThisPreemptorsIsNotAdopted(t *testing.T) {
	for name, change := range map[string]func(order *wire.EvictionOrder, subject *string){
		"of another cluster":         func(o *wire.EvictionOrder, _ *string) { o.ClusterUID = "another" },
		"on another's subject":       func(_ *wire.EvictionOrder, s *string) { *s += "-another" },
		"without an end in sight":    func(o *wire.EvictionOrder, _ *string) { o.NotAfter = wire.At(time.Now().Add(48 * time.Hour)) },
		"past its time":              func(o *wire.EvictionOrder, _ *string) { o.NotAfter = wire.At(time.Now().Add(-time.Minute)) },
		"for a pod that is not here": func(o *wire.EvictionOrder, s *string) { o.Preemptor.UID, *s = "ghost", "makeway.v1.orders.pod.ghost" },
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", high, large).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", mid, large).Obj())
			clusterUID, err := w.plugin.engine.control.ClusterUID()
			if err != nil {
				t.Fatal(err)
			}
			order := &wire.EvictionOrder{
				OrderID: "ord-forged", Kind: "pod", ClusterUID: clusterUID, Fence: wire.Fence{Kind: "lease", Name: "x"}, Writer: "w",
				CreatedAt: wire.At(time.Now()), NotAfter: wire.At(time.Now().Add(time.Minute)), Node: "n1", NodeUID: "n1",
				Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", Priority: high, SchedulerName: "s"},
			}
			subject := "makeway.v1.orders.pod.p"
			change(order, &subject)
			data, err := wrapOrder(order, "makeway/scheduler/forger")
			if err != nil {
				t.Fatal(err)
			}

			w.plugin.engine.takeOrder(w.ctx, natsbus.Record{Subject: subject, Sequence: 1, Data: data})

			if e := w.entry(p.UID); e != nil {
				t.Errorf("adopted: %+v", e)
			}
		})
	}
}

func TestAForgedOutcomeDoesNotEndAnOrder(t *testing.T) {
	for name, forge := range map[string]func(order *wire.EvictionOrder, outcome map[string]any) (subject string){
		"on another's subject": func(o *wire.EvictionOrder, _ map[string]any) string { return o.OrderID + "x" },
		"of another cluster": func(o *wire.EvictionOrder, outcome map[string]any) string {
			outcome["clusterUid"] = "another"
			return o.OrderID
		},
		"of another shape": func(o *wire.EvictionOrder, outcome map[string]any) string {
			outcome["victims"] = "all"
			return o.OrderID
		},
		"of no result": func(o *wire.EvictionOrder, outcome map[string]any) string {
			outcome["result"] = "perhaps"
			return o.OrderID
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", "", high, large).Obj()
			w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", mid, large).Obj())
			w.bus.plan = answers(candidate("n1", "!a"))
			w.nominated(p, "n1")
			w.show(p, "n1")
			order := w.order(1)
			w.eventually("the order is committed", func() bool { e := w.entry(p.UID); return e != nil && e.Phase == orders.Committed })
			outcome := map[string]any{
				"orderId": order.OrderID, "kind": "pod", "clusterUid": order.ClusterUID, "epoch": 1, "result": "failed",
				"evictor": "forger", "startedAt": "2026-01-31T12:00:00Z", "finishedAt": "9999-01-31T12:00:00Z",
			}
			subject := w.plugin.engine.store.Subjects.Outcome(forge(order, outcome))
			data, err := json.Marshal(map[string]any{
				"specversion": "1.0", "id": "out-x", "source": "s", "type": wire.TypeOutcome, "time": "2026-01-31T12:00:00Z",
				"datacontenttype": "application/json", "data": outcome,
			})
			if err != nil {
				t.Fatal(err)
			}

			w.plugin.engine.takeOutcome(w.ctx, natsbus.Record{Subject: subject, Sequence: 9, Data: data})

			if e := w.entry(p.UID); e == nil || e.Phase != orders.Committed {
				t.Errorf("the order has ended: %+v", e)
			}
		})
	}
}

func TestAVictimsGracePeriodBeyondReasonDoesNotOverflow(t *testing.T) {
	now := time.Now()
	for _, grace := range []int64{-1 << 63, -1, 1<<63 - 1} {
		until := orders.LeavingUntil(&wire.Outcome{Victims: []wire.VictimOutcome{{GracePeriodSeconds: grace}}}, now)

		if until.Before(now.Add(wire.LeavingSlack)) {
			t.Errorf("grace %d: until %s", grace, until)
		}
	}
}

package preempt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// The planner's side compares what it reads of both files.
func TestOnlyWhatThePlannerReadsOfAPodIsSent(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile("../testdata/pods/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var full v1.Pod
	if err := json.Unmarshal(read("full.json"), &full); err != nil {
		t.Fatal(err)
	}

	sent, err := wire.Encode(project(&full))
	if err != nil {
		t.Fatal(err)
	}

	if want := bytes.TrimSpace(read("projected.json")); !bytes.Equal(sent, want) {
		t.Errorf("sent\n%s\nwant\n%s", sent, want)
	}
	if bytes.Contains(sent, []byte("not-read")) {
		t.Error("what the planner does not read is in it")
	}
	if full.Spec.Containers[0].Env == nil || full.ManagedFields == nil {
		t.Error("the pod itself has changed")
	}
}

func TestSecretsAndEscapesDoNotMakeAQuestionLarge(t *testing.T) {
	p := pod("p", "", 100, large).Annotation("text", strings.Repeat("<", 190_000)).Obj()
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PASSWORD", Value: strings.Repeat("x", 1<<20)}}
	w, _, _ := simple(t, setup{}, nil)

	request, err := w.plugin.planRequest(p, wire.ModeEnforce, wire.NodeSelection{}, 1, false)
	if err != nil {
		t.Fatal(err)
	}

	if data, err := wire.Encode(request); err != nil || len(data) > 4096 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestOrdersWithManyVictimsWaitBeforeTheyMakeAQuestionTooLarge(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	engine := w.plugin.engine
	var nodes []string
	for n := range 5000 {
		nodes = append(nodes, fmt.Sprintf("ip-10-0-%03d-%03d.eu-central-1.compute.internal", n/256, n%256))
	}
	begun := 0
	for ; begun < maxOrdersInFlight && !w.plugin.ordersLimited(); begun++ {
		uid := string(uuid.NewUUID())
		e := order(wire.NewOrderID(time.Now()))
		e.preemptor = wire.PodRef{Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("a-pod-with-a-long-name-%d", begun), UID: uid}
		e.node, e.createdAt, e.opensAt = nodes[begun], time.Now(), time.Now().Add(time.Hour)
		for range 20 {
			e.victims = append(e.victims, uuid.NewUUID())
		}
		for _, victim := range e.victims {
			e.remaining[victim] = time.Time{}
		}
		engine.inflight.begin(e)
	}

	request, err := w.plugin.planRequest(p, wire.ModeEnforce, wire.NodeSelection{Names: nodes[:2500]}, 16, false)
	if err != nil {
		t.Fatal(err)
	}
	data, err := wire.Encode(request)
	if err != nil || len(data) > wire.MaxBytes*7/8 || len(request.LiveOrders) != begun {
		t.Errorf("%d bytes with %d of %d orders, %v", len(data), len(request.LiveOrders), begun, err)
	}
	if begun < 300 {
		t.Errorf("no more than %d orders", begun)
	}
	lists, err := wire.Encode(&wire.PlanRequest{LiveOrders: request.LiveOrders, Nominations: request.Nominations})
	if empty, _ := wire.Encode(&wire.PlanRequest{}); err != nil || len(lists)-len(empty) > engine.inflight.bytes() {
		t.Errorf("the orders take %d bytes, which are taken for %d", len(lists), engine.inflight.bytes())
	}

	result, status := w.cycle(p)

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "eviction orders are in flight") {
		t.Errorf("result %+v, status %v", result, status)
	}
	if pods, _ := engine.orderLimitQueue.due(engine.orderRoom(engine.inflight.count())); len(pods) != 0 {
		t.Error("the pod is activated though there is no room")
	}
}

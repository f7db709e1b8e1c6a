package plugin

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestAllProfilesOfASchedulerShareOneEngineThatEndsWithTheContext(t *testing.T) {
	w := newWorld(t, setup{}, []*v1.Node{node("n1")})
	w.following(3) // its own engine has started its goroutines
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(w.ctx)
	const noServer = `"natsURL": "nats://127.0.0.1:1"`
	begun := time.Now()
	first, err := New(ctx, argsOf(`{`+noServer+`}`), w.framework)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("New took %s without NATS", took)
	}

	second, err := New(ctx, argsOf(`{`+noServer+`, "mode": "observe"}`), w.framework)

	if err != nil || first.(*MakeWay).engine != second.(*MakeWay).engine {
		t.Errorf("error %v, one engine %t", err, first.(*MakeWay).engine == second.(*MakeWay).engine)
	}
	if second.(*MakeWay).args.Mode != "observe" || first.(*MakeWay).args.Mode != "enforce" {
		t.Error("a profile's own arguments are not its own")
	}
	if _, err := New(ctx, argsOf(`{"natsURL": "nats://127.0.0.1:2"}`), w.framework); err == nil || !strings.Contains(err.Error(), "natsURL") {
		t.Errorf("error %v, want that natsURL differs", err)
	}

	cancel()

	w.eventually("the engine is forgotten", func() bool {
		_, existed, _ := engines.Of(w.ctx, w.framework.SharedInformerFactory(), func() (*engine, error) { return nil, errors.New("none is made") })
		return !existed
	})
	// The listeners of three informers stay, two goroutines each: they end with their factory.
	w.eventually("its goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+6 })
}

func TestAPanicInAnyEntryPointGivesItsDocumentedAnswer(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.plugin.engine = nil // anything that is touched panics

	if status := w.plugin.PreEnqueue(w.ctx, p); !status.IsSuccess() {
		t.Errorf("PreEnqueue: %v", status)
	}
	if status := w.plugin.Reserve(w.ctx, nil, p, "n1"); !status.IsSuccess() {
		t.Errorf("Reserve: %v", status)
	}
	w.plugin.Unreserve(w.ctx, nil, p, "n1")
	if result, status := w.cycle(p); result != nil || status.Code() != fwk.UnschedulableAndUnresolvable { // nor is it known what restricts preemption
		t.Errorf("PostFilter: %+v, %v", result, status)
	}
}

func TestNoEventOfTheClusterHasTheQueueLookAtAGatedPod(t *testing.T) {
	events, err := (&MakeWay{}).EventsToRegister(context.Background())

	if err != nil || len(events) != 0 {
		t.Errorf("events %+v, error %v", events, err)
	}
}

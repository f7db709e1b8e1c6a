package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/orders"
	"makeway.dev/makeway/plugin/wire"
)

func TestAPlacementIsToldWithTheNumberOfItsPods(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)

	_, status := w.cycle(p)

	if want := "makeway: found a placement on node n1, preempting 1 pod"; status.Message() != want {
		t.Errorf("%q, want %q", status.Message(), want)
	}
	if two := counted(2, "member"); two != "2 members" {
		t.Error(two)
	}
}

func TestPostFilterHandsItsCommitOverAndWaitsForNoAnswer(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	answer := make(chan struct{})
	w.bus.commit = func(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
		<-answer
		return storing{bus: w.bus, engine: w.plugin.engine}.commit(ctx, commit)
	}

	e := w.nominated(p, "n1")

	var commit *wire.CommitRequest
	w.eventually("it is asked for", func() bool {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		if len(w.bus.commits) == 1 {
			commit = w.bus.commits[0]
		}
		return commit != nil
	})
	if commit.OrderID != e.OrderID || commit.Offer != "offer" || len(commit.Placements) != 1 || commit.Placements[0].Node != "n1" || commit.Placements[0].UID != "p" || !slices.Equal(commit.Victims, []string{"a"}) {
		t.Errorf("commit %+v", commit)
	}
	if want := wire.At(wire.Steady(e.CreatedAt).Add(orders.StoredWithin(1))); commit.StoreBy != want {
		t.Errorf("the order may be stored by %s, want %s, as of the nomination", commit.StoreBy, want)
	}
	close(answer)
	w.show(p, "n1")
	w.eventually("the order is known to be stored", func() bool { return w.entry("p").Phase == orders.Committed })
}

func TestAStoredOrderIsNotOverForThatThePlannersClockIsBehind(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.commit = func(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
		return storing{bus: w.bus, engine: w.plugin.engine, ahead: -time.Hour}.commit(ctx, commit)
	}

	e := w.nominated(p, "n1")
	w.show(p, "n1")

	w.eventually("the order is known to be stored", func() bool { return w.plugin.engine.inflight.ByID(e.OrderID).Phase != orders.Storing })
	if e = w.entry("p"); e.Phase != orders.Committed || time.Until(e.OpensAt) < 50*time.Second {
		t.Errorf("the order is %v, and its gate opens in %s", e.Phase, time.Until(e.OpensAt))
	}
}

func TestACommitWhoseAnswerIsLostIsAskedAgainUnderItsID(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.deaf(3)
	w.bus.publish = func(attempt int) (bool, error) {
		if attempt == 1 {
			return true, errors.New("the answer is lost")
		}
		return true, nil
	}

	e := w.nominated(p, "n1")
	w.show(p, "n1")

	w.eventually("the order is known to be stored", func() bool { return w.entry("p").Phase == orders.Committed })
	w.bus.mu.Lock()
	defer w.bus.mu.Unlock()
	if len(w.bus.commits) != 2 || w.bus.commits[1].OrderID != e.OrderID || len(w.bus.messages) != 1 {
		t.Errorf("%d commits, %d messages, want the same one asked twice", len(w.bus.commits), len(w.bus.messages))
	}
}

func TestAnOrderThatIsReadFromTheStreamIsAnsweredByThat(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.publish = func(int) (bool, error) { return true, errors.New("no answer comes through") }

	w.nominated(p, "n1")
	w.show(p, "n1")

	w.eventually("the order is known to be stored", func() bool { return w.entry("p").Phase == orders.Committed })
}

// voiding answers every commit with a void.
func voiding(reason string) func(context.Context, *wire.CommitRequest) (*wire.CommitReply, error) {
	return func(context.Context, *wire.CommitRequest) (*wire.CommitReply, error) {
		return &wire.CommitReply{Void: &wire.Void{Reason: reason, Message: "said the planner"}}, nil
	}
}

func TestAVoidTakesTheNominationBackAndThePodIsTriedAgain(t *testing.T) {
	for _, reason := range []string{"victim-spared", "unit-incomplete", "late", "awaited-order-failed"} {
		t.Run(reason, func(t *testing.T) {
			w, p, _ := simple(t, setup{}, nil)
			w.bus.commit = voiding(reason)
			w.nominated(p, "n1")
			w.show(p, "n1")

			w.eventually("it is tried again", func() bool { return w.entry("p") == nil && w.activator.of("p") == 1 })

			w.eventually("the nomination shows", func() bool { return w.plugin.engine.current(orders.RefOf(p)).Status.NominatedNodeName == "n1" })
			w.nominated(p, "n1")
		})
	}
}

func TestACommitForAGroupNamesItsMembersAndIsHandedOverAsThatForAPod(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 2, 2, g1, g2)
	w.bus.group = plans(gangPlan("n1", "n2"))
	answer := make(chan struct{})
	w.bus.commit = func(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
		<-answer
		return storing{bus: w.bus, engine: w.plugin.engine}.commit(ctx, commit)
	}

	if _, status := w.gang(c); !status.IsSuccess() {
		t.Fatal(status)
	}

	var commit *wire.CommitRequest
	w.eventually("it is asked for", func() bool {
		w.bus.mu.Lock()
		defer w.bus.mu.Unlock()
		if len(w.bus.commits) == 1 {
			commit = w.bus.commits[0]
		}
		return commit != nil
	})
	var places []string
	for _, place := range commit.Placements {
		places = append(places, place.UID+" on "+place.Node)
	}
	if commit.Group == nil || commit.Group.UID != "gang-uid" || commit.Group.MustPlace != 2 || commit.Offer != "offer" ||
		!slices.Equal(places, []string{"g1 on n1", "g2 on n2"}) || !slices.Equal(commit.Victims, []string{"v1", "v2"}) {
		t.Errorf("commit %+v", commit)
	}
	close(answer)
	w.show(g1, "n1")
	w.show(g2, "n2")
	w.eventually("the order is known to be stored", func() bool { return w.entry("gang-uid").Phase == orders.Committed })
}

func TestAVoidTakesTheNominationsOfAGroupBackAndTheGroupIsTriedAgain(t *testing.T) {
	g1, g2 := gangMember("g1"), gangMember("g2")
	w, c := gangWorld(t, setup{}, 2, 2, g1, g2)
	w.bus.group = plans(gangPlan("n1", "n2"))
	w.bus.commit = voiding("member-gone")

	w.gang(c)
	w.show(g1, "n1")
	w.show(g2, "n2")

	w.eventually("it is tried again", func() bool { return w.entry("gang-uid") == nil && w.activator.of("g1") == 1 })
	w.eventually("its nominations are cleared in the API", func() bool {
		return !slices.ContainsFunc([]string{"g1", "g2"}, func(name string) bool {
			p, err := w.plugin.engine.cluster.pods.Pods("default").Get(name)
			return err != nil || p.Status.NominatedNodeName != ""
		})
	})
}

func TestAnOrderThatAnotherProcessWroteFirstIsAdoptedInPlaceOfTheCommit(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	other := &wire.EvictionOrder{
		OrderID: "ord-other", Kind: "pod", ClusterUID: "cluster", Fence: wire.Fence{Kind: "kv", Name: "x", Epoch: 1}, Writer: "another",
		CreatedAt: wire.At(time.Now()), NotAfter: wire.At(time.Now().Add(time.Minute)), Node: "n1", NodeUID: "n1",
		Preemptor: &wire.Preemptor{Namespace: "default", Name: "p", UID: "p", SchedulerName: "default-scheduler"},
	}
	data, err := wrapOrder(other, "another")
	if err != nil {
		t.Fatal(err)
	}
	w.deaf(3) // it is not read yet
	w.bus.put(w.plugin.engine.store.Subjects.Order(wire.KindPod, "p"), data)

	w.nominated(p, "n1")
	w.show(p, "n1")

	w.eventually("it is adopted", func() bool { e := w.entry("p"); return e != nil && e.OrderID == "ord-other" })
}

func TestAPodThatIsGoneNeedsNoOrder(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	void := voiding("preemptor-gone")
	w.bus.commit = func(ctx context.Context, commit *wire.CommitRequest) (*wire.CommitReply, error) {
		if err := w.client.CoreV1().Pods(p.Namespace).Delete(w.ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		w.eventually("it is gone", func() bool { return w.plugin.engine.current(orders.RefOf(p)) == nil })
		return void(ctx, commit)
	}

	w.nominated(p, "n1")

	w.eventually("nothing is kept", func() bool { return w.entry("p") == nil })
	if w.activator.of("p") != 0 {
		t.Error("it was activated")
	}
}

func TestAPodThatThePlannerAloneTakesForGoneIsTriedAgain(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	w.bus.commit = voiding("preemptor-gone")

	w.nominated(p, "n1")

	w.eventually("it is tried again", func() bool { return w.activator.of("p") > 0 })
}

func TestACommitThatIsNotDeliveredIsGivenUpAtOnce(t *testing.T) {
	for _, failure := range []error{natsbus.ErrNotSent, natsbus.ErrNoResponders} {
		w, p, _ := simple(t, setup{}, nil)
		w.bus.publish = func(int) (bool, error) { return false, failure }

		w.nominated(p, "n1")

		w.eventually("it is tried again", func() bool { return w.entry("p") == nil && w.activator.of("p") == 1 })
		if w.bus.attempts != 1 {
			t.Errorf("%v: %d attempts", failure, w.bus.attempts)
		}
	}
}

func TestAPlannerOfAnotherVersionIsToldApartAndNothingIsNominated(t *testing.T) {
	w, p, _ := simple(t, setup{}, nil)
	plan := w.bus.plan
	w.bus.raw = func(request *wire.PlanRequest) []byte {
		reply, err := plan(request)
		if err != nil {
			t.Fatal(err)
		}
		reply.APIVersion, reply.Planner, reply.RequestID, reply.Status = "makeway.dev/v2", "new", request.RequestID, wire.StatusCandidates
		data, err := wire.Encode(reply)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}

	_, status := w.cycle(p)

	if status.IsSuccess() || !strings.Contains(status.Message(), `apiVersion "makeway.dev/v2", this side speaks makeway.dev/v1`) || w.entry("p") != nil {
		t.Errorf("status %v", status)
	}
}

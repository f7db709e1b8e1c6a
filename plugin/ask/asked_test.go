package ask

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

func TestNoMoreLateQuestionsAreKeptThanTheBoundAndEachPreemptorHasOne(t *testing.T) {
	late := NewLate(2)
	first, again := NewAsked(1), NewAsked(2)
	for _, uid := range []types.UID{"a", "b"} {
		if !late.Keep(uid, string(uid), first, "", tracing.Span{}) {
			t.Errorf("%s is not kept", uid)
		}
	}
	if late.Keep("c", "c", first, "", tracing.Span{}) {
		t.Error("more are kept than the bound")
	}
	if !late.Keep("a", "a", again, "", tracing.Span{}) || late.Tell("a", first) || late.End("a", first) {
		t.Error("a preemptor's newer question does not take the place of the older")
	}
	if late.Of("a") != again {
		t.Error("it is not the newer question that is kept")
	}
	if !late.Tell("a", again) || late.Tell("a", again) {
		t.Error("it is told of not once")
	}
	if late.Forget("a"); late.Of("a") != nil || !late.Keep("c", "c", first, "", tracing.Span{}) {
		t.Error("no room after one was forgotten")
	}
}

func TestANamespaceLeavesOthersRoomForLateQuestions(t *testing.T) {
	late, kept := NewLate(8), map[string]int{}
	for _, namespace := range []string{"first", "second"} {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if late.Keep(types.UID(namespace+name), namespace, NewAsked(1), "", tracing.Span{}) {
				kept[namespace]++
			}
		}
	}
	if kept["first"] != 4 || kept["second"] != 2 {
		t.Errorf("kept %v", kept)
	}
}

func TestAnAnswerThatHasComeIsThereForWhoWaitsNotAtAll(t *testing.T) {
	asked := NewAsked(1)
	if _, err := asked.Await(context.Background(), 0); !errors.Is(err, ErrLate) {
		t.Errorf("error %v", err)
	}

	asked.Ask(func() (*wire.PlanReply, error) { return &wire.PlanReply{RequestID: "r"}, nil })

	if reply, err := asked.Await(context.Background(), 0); err != nil || reply.RequestID != "r" {
		t.Errorf("reply %+v, error %v", reply, err)
	}
}

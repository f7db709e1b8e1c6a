package ask

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

func TestNoMoreLateQuestionsAreKeptThanTheBoundAndEachPreemptorHasOne(t *testing.T) {
	late := NewLate(2)
	first, again := NewAsked(1), NewAsked(2)
	keep := func(uid types.UID, asked *Asked) bool {
		return late.Keep(uid, Kept{Asked: asked, Namespace: string(uid)})
	}
	for _, uid := range []types.UID{"a", "b"} {
		if !keep(uid, first) {
			t.Errorf("%s is not kept", uid)
		}
	}
	if keep("c", first) {
		t.Error("more are kept than the bound")
	}
	if !keep("a", again) || late.Tell("a", first) || late.End("a", first) {
		t.Error("a preemptor's newer question does not take the place of the older")
	}
	if late.Of("a") != again {
		t.Error("it is not the newer question that is kept")
	}
	if !late.Tell("a", again) || late.Tell("a", again) {
		t.Error("it is told of not once")
	}
	if late.Forget("a"); late.Of("a") != nil || !keep("c", first) {
		t.Error("no room after one was forgotten")
	}
}

func TestOfTooManyLateQuestionsTheLeastImportantOfTheNamespaceWithTheMostGo(t *testing.T) {
	late, kept, dropped := NewLate(8), map[string]int{}, map[string]int{}
	keep := func(namespace, name string, priority int32) bool {
		room := late.Room(namespace, priority)
		is := late.Keep(types.UID(namespace+name), Kept{Asked: NewAsked(1), Namespace: namespace, Priority: priority, Dropped: func() {
			late.Unused(namespace, time.Time{}) // it may call
			dropped[fmt.Sprint(namespace, priority)]++
		}})
		if is != room {
			t.Errorf("%s%s: kept %t, with room %t", namespace, name, is, room)
		}
		return is
	}
	for _, namespace := range []string{"first", "second"} {
		for i := range 9 {
			if keep(namespace, fmt.Sprint(i), int32(i%2)) {
				kept[namespace]++
			}
		}
	}

	if kept["first"] != 8 || kept["second"] < 4 || dropped["first0"] != 4 || dropped["first1"] != 0 {
		t.Errorf("kept %v, dropped %v", kept, dropped)
	}
	if keep("second", "late", 0) || !keep("second", "more important", 2) || !keep("first", "more important", 2) {
		t.Error("the more important do not come first in their namespace")
	}
	if !keep("third", "one", 0) {
		t.Error("no room for a third namespace")
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

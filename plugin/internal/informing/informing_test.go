package informing

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// informer hands its handler out.
type informer struct {
	cache.SharedInformer
	handler cache.ResourceEventHandler
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return registration{}, nil
}

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: types.UID(uid)}}
}

func TestWhatAnInformerReportsIsThereOrGone(t *testing.T) {
	for name, test := range map[string]struct {
		event func(cache.ResourceEventHandler)
		want  []string
	}{
		"one comes":          {func(h cache.ResourceEventHandler) { h.OnAdd(pod("a"), false) }, []string{"a"}},
		"one changes":        {func(h cache.ResourceEventHandler) { h.OnUpdate(pod("a"), pod("a")) }, []string{"a to a"}},
		"one goes":           {func(h cache.ResourceEventHandler) { h.OnDelete(pod("a")) }, []string{"a gone"}},
		"one went unseen":    {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod("a")}) }, []string{"a gone"}},
		"one is made anew":   {func(h cache.ResourceEventHandler) { h.OnUpdate(pod("a"), pod("b")) }, []string{"a gone", "b"}},
		"another type comes": {func(h cache.ResourceEventHandler) { h.OnAdd(&v1.Node{}, false) }, nil},
	} {
		var got []string
		watched := &informer{}
		changed := func(before, now *v1.Pod) {
			if before != nil {
				got = append(got, string(before.UID)+" to "+string(now.UID))
				return
			}
			got = append(got, string(now.UID))
		}
		if _, err := Watch(context.Background(), watched, changed, func(gone *v1.Pod) { got = append(got, string(gone.UID)+" gone") }); err != nil {
			t.Fatal(err)
		}

		test.event(watched.handler)

		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestAPanicWhileAnEventIsTakenInEndsNothing(t *testing.T) {
	watched := &informer{}
	if _, err := Watch(context.Background(), watched, func(_, _ *v1.Pod) { panic("changed") }, func(*v1.Pod) { panic("gone") }); err != nil {
		t.Fatal(err)
	}

	watched.handler.OnAdd(pod("a"), false)
	watched.handler.OnUpdate(pod("a"), pod("b"))
	watched.handler.OnDelete(pod("b"))
}

package ask

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

func TestAPlanReplacesThePlacesOfThePodsThatAreAskedAbout(t *testing.T) {
	on := func(uids ...string) (places []wire.Placement) {
		for _, uid := range uids {
			places = append(places, wire.Placement{Namespace: "ns", Name: uid, UID: uid, Node: "n1"})
		}
		return places
	}
	pod := func(uid types.UID) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }
	for name, classes := range map[string][]*Class{
		"a pod":                    One(pod("b"), Potential{}),
		"members of several kinds": {{Pods: []*v1.Pod{pod("x"), pod("b")}}, {Pods: []*v1.Pod{pod("y")}}},
	} {
		known := wire.PlanRequest{Nominations: on("a", "b", "c"), Assumed: on("b", "d")}

		request, err := Question{Classes: classes}.Request(known)

		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(request.Nominations, on("a", "c")) || !slices.Equal(request.Assumed, on("d")) {
			t.Errorf("%s: nominated %v, assumed %v", name, request.Nominations, request.Assumed)
		}
	}
}

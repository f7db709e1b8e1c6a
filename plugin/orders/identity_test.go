package orders

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

// A victim may take a day to leave, or never leave for a finalizer. For the grace period and a minute its preemptor is refused
// another order, and then tried again. Time is virtual.
func TestAPreemptorIsReleasedAGracePeriodAndAMinuteAfterItsOrder(t *testing.T) {
	ended := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for name, grace := range map[string]time.Duration{"no grace": 0, "30 s": 30 * time.Second, "24 hours": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			f := NewInFlight(noQuota{})
			f.Begin(&Order{
				OrderID: "ord-1", Preemptor: wire.PodRef{Namespace: "default", Name: "p", UID: "p"}, Node: "n1",
				Removal:   Removal{Victims: []types.UID{"v"}, Awaited: map[types.UID]string{}, Remaining: map[types.UID]time.Time{"v": {}}},
				CreatedAt: ended, OpensAt: ended.Add(time.Minute),
			})
			stored(f, "ord-1", ended.Add(time.Minute))
			outcome := &wire.Outcome{OrderID: "ord-1", Victims: []wire.VictimOutcome{{UID: "v", GracePeriodSeconds: int64(grace.Seconds())}}}
			f.Succeed("ord-1", ended, LeavingUntil(outcome, ended), func(types.UID) bool { return false })
			release := ended.Add(grace + time.Minute)

			activations, next := f.Due(release.Add(-time.Second))
			if len(activations) != 0 || !next.Equal(release) {
				t.Fatalf("activated early: %+v, asked again at %s, want %s", activations, next, release)
			}
			if why, _, _ := f.Refuse("p", release.Add(-time.Second), stillThere); why != RefusedLeaving {
				t.Fatalf("refused early with %d", why)
			}

			activations, _ = f.Due(release)
			if len(activations) != 1 || activations[0].Preemptor.UID != "p" {
				t.Fatalf("activations %+v, want p", activations)
			}
			if _, _, closed := f.Gate("p", types.NamespacedName{}, release); closed {
				t.Error("the gate is closed")
			}
			if f.Has("p") {
				t.Error("the order is still known, so that the pod would be refused another")
			}
		})
	}
}

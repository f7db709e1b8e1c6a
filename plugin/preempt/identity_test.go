package preempt

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
			f := newInflight()
			f.begin(&inFlightPreemption{
				orderID: "ord-1", preemptor: wire.PodRef{Namespace: "default", Name: "p", UID: "p"}, node: "n1",
				victims: []types.UID{"v"}, awaited: map[types.UID]string{}, remaining: map[types.UID]time.Time{"v": {}},
				createdAt: ended, opensAt: ended.Add(time.Minute),
			})
			f.commit("ord-1", ended.Add(time.Minute))
			outcome := &wire.Outcome{OrderID: "ord-1", Victims: []wire.VictimOutcome{{UID: "v", GracePeriodSeconds: int64(grace.Seconds())}}}
			f.succeed("ord-1", ended, leavingUntil(outcome, ended), func(types.UID) bool { return false })
			release := ended.Add(grace + time.Minute)

			activations, next := f.due(release.Add(-time.Second))
			if len(activations) != 0 || !next.Equal(release) {
				t.Fatalf("activated early: %+v, asked again at %s, want %s", activations, next, release)
			}
			if kind, _, _ := f.refuse("p", release.Add(-time.Second), stillThere); kind != endLeaving {
				t.Fatalf("refused early with %q", kind)
			}

			activations, _ = f.due(release)
			if len(activations) != 1 || activations[0].pod.UID != "p" {
				t.Fatalf("activations %+v, want p", activations)
			}
			if _, _, closed := f.gate("p", release); closed {
				t.Error("the gate is closed")
			}
			if f.has("p") {
				t.Error("the order is still known, so that the pod would be refused another")
			}
		})
	}
}

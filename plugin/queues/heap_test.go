package queues

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestPodsComeOutOfAHeapInOrderWhicheverWereTakenOutBefore(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		for order := range orders {
			heaps := []*podHeap{{order: order}, {order: order}}
			in := []map[*waitingPod]bool{{}, {}}
			for i := range 300 {
				at := random.IntN(2)
				switch action := random.IntN(8); {
				case action < 5:
					w := &waitingPod{demand: demand{priority: int32(random.IntN(5))}, turn: turn{checked: uint64(random.IntN(5))}, pod: wire.PodRef{UID: fmt.Sprintf("%03d", i)}}
					heaps[at].push(w)
					in[at][w] = true
				case action < 7:
					for w := range in[at] {
						heaps[at].remove(w)
						delete(in[at], w)
						break
					}
				default:
					heaps[at].meld(heaps[1-at])
					for w := range in[1-at] {
						in[at][w] = true
					}
					clear(in[1-at])
				}
			}
			for at, h := range heaps {
				var got, want []*waitingPod
				for w := range in[at] {
					want = append(want, w)
				}
				slices.SortFunc(want, func(a, b *waitingPod) int {
					if h.less(a, b) {
						return -1
					}
					return 1
				})
				for h.root != nil {
					got = append(got, h.root)
					h.remove(h.root)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, order %d: %d came out in another order, of %d", seed, order, len(got), len(want))
				}
			}
		}
	}
}

func TestARoundChecksAsManyPodsAndNoMoreHoweverManyWait(t *testing.T) {
	for waiting, want := range map[int]int{maxChecks / 2: maxChecks / 2, maxChecks: maxChecks, 5 * maxChecks: maxChecks} {
		w := crowded(t, waiting)
		w.shows(on(in("root.a", "x", mid, 10).Obj(), "n1"))
		w.deletes(in("root.a", "x", mid, 10).Obj()) // the queue that all wait for has come to hold less

		w.gate.due(true)

		checked := 0
		for _, one := range w.gate.waiting.pods {
			if one.checked == w.gate.waiting.ticks {
				checked++
			}
		}
		if checked != want {
			t.Errorf("%d of %d waiting pods were checked, want %d", checked, waiting, want)
		}
	}
}

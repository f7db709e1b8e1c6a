package orders

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"makeway.dev/makeway/plugin/wire"
)

var (
	start = time.Unix(1000, 0)
	small = map[v1.ResourceName]string{v1.ResourceCPU: "100m"}
)

// noQuota reserves nothing.
type noQuota struct{}

func (noQuota) ReserveQuota(wire.PodRef) {}
func (noQuota) ReleaseQuota(types.UID)   {}

// at is a time some milliseconds after the start.
func at(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }

func pod(name, on string, priority int32, requests map[v1.ResourceName]string) *st.PodWrapper {
	return st.MakePod().Namespace("default").Name(name).UID(name).Node(on).Priority(priority).Req(requests)
}

// stored notes that the stream has an order as it was asked for.
func stored(f *InFlight, orderID string, opensAt time.Time) {
	order := &wire.EvictionOrder{OrderID: orderID}
	if e := f.byOrder[orderID]; e != nil {
		for uid, of := range e.Awaited {
			order.Awaited = append(order.Awaited, wire.Awaited{UID: string(uid), OrderID: of})
		}
	}
	f.Stored(order, opensAt)
}

// Count is how many preemptors have an order without an outcome.
func (f *InFlight) Count() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := 0
	for _, e := range f.byPod {
		if e.Phase.live() && !e.isQuota() {
			n++
		}
	}
	return n
}

package bridge

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"makeway.dev/makeway/plugin/wire"
)

// fence gives the epoch that this process's orders carry, so that an older leader's are refused. It is
// read once: where there is no Lease, at the start; else when the first order is committed, as long as the Lease names this
// process. A scheduler that loses its Lease ends, so that the number stays right as long as the process lives; one that has
// lost it without knowing, before its first order, must not take its successor's number.
type fence struct {
	args    *MakeWayArgs
	profile string
	client  clientset.Interface
	records Records

	mu   sync.Mutex
	read *wire.Fence
}

// raiseEpoch counts the start of a scheduler without a Lease: what an earlier one commits after it is refused.
func (e *engine) raiseEpoch(ctx context.Context) {
	for e.args.Lease.Name == "" && ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, natsCallTimeout)
		_, err := e.fence.get(call, e.subjects.EpochsBucket)
		cancel()
		if err == nil {
			return
		}
		sleep(ctx, natsRetryDelay)
	}
}

// get reads the epoch, or gives the one read before. An error is not remembered.
func (f *fence) get(ctx context.Context, bucket string) (wire.Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read != nil {
		return *f.read, nil
	}
	lease := f.args.Lease
	if lease.Name == "" {
		epoch, err := f.records.NextEpoch(ctx, bucket, f.profile)
		if err != nil {
			return wire.Fence{}, err
		}
		f.read = &wire.Fence{Kind: "kv", Name: f.profile, Epoch: epoch}
		return *f.read, nil
	}
	object, err := f.client.CoordinationV1().Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
	if err != nil {
		return wire.Fence{}, fmt.Errorf("lease %s/%s (set lease.name of MakeWayArgs to the scheduler's lease, or to \"\" where there is no leader election): %w", lease.Namespace, lease.Name, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return wire.Fence{}, err
	}
	// kube-scheduler names itself by its host and something random, which it does not tell its plugins.
	if holder := ptr.Deref(object.Spec.HolderIdentity, ""); !strings.HasPrefix(holder, host+"_") {
		return wire.Fence{}, fmt.Errorf("lease %s/%s is held by %q, not by this scheduler on %s (set lease.name of MakeWayArgs to the scheduler's lease, or to \"\" where there is no leader election)", lease.Namespace, lease.Name, holder, host)
	}
	f.read = &wire.Fence{Kind: "lease", Name: lease.Name, Namespace: lease.Namespace}
	if object.Spec.LeaseTransitions != nil {
		f.read.Epoch = int64(*object.Spec.LeaseTransitions)
	}
	return *f.read, nil
}

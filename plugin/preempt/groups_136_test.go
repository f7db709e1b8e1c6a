//go:build kube136

package preempt

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"

	"makeway.dev/makeway/plugin/internal/minor/minortest"
)

// Where the gate is on, kube-scheduler's own preemption evicts nothing for a gang pod by pod either.
func TestPodsOfAGroupAreHeldWhereTheSchedulerMakesRoomForGroupsAsAWhole(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload: true, features.GangScheduling: true, features.WorkloadAwarePreemption: true,
	})

	p := pod("p", "", high, large).Obj()
	minortest.JoinGroup(p, "g")
	w := newWorld(t, setup{}, []*v1.Node{node("n1")}, p, pod("a", "n1", low, large).Obj())

	if _, status := w.cycle(p); status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "WorkloadAwarePreemption") {
		t.Errorf("got %s %q, want it held", status.Code(), status.Message())
	}
}

//go:build !kube136

// Package schedulerutils stands in for k8s.io/kubernetes/test/integration/scheduler, as package testutils does for the
// utilities of all integration tests.
package schedulerutils

import (
	"testing"

	"k8s.io/kubernetes/pkg/scheduler"
	upstream "k8s.io/kubernetes/test/integration/scheduler"

	"makeway.dev/makeway/tests/upstream/suites/testutils"
)

// InitRegistryAndConfig is what the tests use as it is.
var InitRegistryAndConfig = upstream.InitRegistryAndConfig

// InitTestSchedulerForFrameworkTest makes a scheduler.
func InitTestSchedulerForFrameworkTest(t *testing.T, testCtx *testutils.TestContext, nodeCount int, runScheduler bool, opts ...scheduler.Option) (*testutils.TestContext, testutils.ShutdownFunc) {
	return upstream.InitTestSchedulerForFrameworkTest(t, testCtx, nodeCount, runScheduler, testutils.WithMakeWay(t, testCtx, opts)...)
}

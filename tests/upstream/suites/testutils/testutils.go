//go:build !kube136

// Package testutils stands in for k8s.io/kubernetes/test/integration/util in kube-scheduler's own integration tests.
// Every API server that a test starts gets a nats-server, a planner and an evictor of its own, and every scheduler has
// MakeWay where it would have DefaultPreemption; the rest is upstream's. tests/upstream_suites compiles the tests
// against it, and starts what it asks for.
package testutils

import (
	"testing"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/test/integration/util"
)

// What the tests use as it is.
type (
	PausePodConfig = util.PausePodConfig
	ShutdownFunc   = util.ShutdownFunc
	TestContext    = util.TestContext
)

// What the tests use as it is. InitTestDisablePreemption makes a scheduler without preemption, which is to stay so.
var (
	CleanupNodes                        = util.CleanupNodes
	CleanupPods                         = util.CleanupPods
	CreateNode                          = util.CreateNode
	CreatePV                            = util.CreatePV
	CreatePVC                           = util.CreatePVC
	CreatePausePod                      = util.CreatePausePod
	DeletePV                            = util.DeletePV
	DeletePVC                           = util.DeletePVC
	DeletePod                           = util.DeletePod
	GetPod                              = util.GetPod
	InitDisruptionController            = util.InitDisruptionController
	InitPausePod                        = util.InitPausePod
	InitTestDisablePreemption           = util.InitTestDisablePreemption
	PodDeleted                          = util.PodDeleted
	PodIsGettingEvicted                 = util.PodIsGettingEvicted
	PodScheduled                        = util.PodScheduled
	PodUnschedulable                    = util.PodUnschedulable
	RunPausePod                         = util.RunPausePod
	SyncSchedulerInformerFactory        = util.SyncSchedulerInformerFactory
	WaitCachedPodsStable                = util.WaitCachedPodsStable
	WaitForNodesInCache                 = util.WaitForNodesInCache
	WaitForNominatedNodeName            = util.WaitForNominatedNodeName
	WaitForNominatedNodeNameWithTimeout = util.WaitForNominatedNodeNameWithTimeout
	WaitForPDBsStable                   = util.WaitForPDBsStable
	WaitForPodToSchedule                = util.WaitForPodToSchedule
	WaitForPodToScheduleWithTimeout     = util.WaitForPodToScheduleWithTimeout
	WaitForPodUnschedulable             = util.WaitForPodUnschedulable
)

// InitTestAPIServer starts an API server as upstream's does, and then what MakeWay needs beside it.
func InitTestAPIServer(t *testing.T, nsPrefix string, admission admission.Interface) *TestContext {
	testCtx := util.InitTestAPIServer(t, nsPrefix, admission)
	stop := startServices(t, testCtx.KubeConfig)
	closeServer := testCtx.CloseFn
	testCtx.CloseFn = func() {
		stop() // the API server does not end while it is watched
		closeServer()
	}
	return testCtx
}

// InitTestScheduler makes a scheduler of the default profile.
func InitTestScheduler(t *testing.T, testCtx *TestContext) *TestContext {
	return InitTestSchedulerWithOptions(t, testCtx, 0)
}

// InitTestSchedulerWithOptions makes a scheduler.
func InitTestSchedulerWithOptions(t *testing.T, testCtx *TestContext, resyncPeriod time.Duration, opts ...scheduler.Option) *TestContext {
	return util.InitTestSchedulerWithOptions(t, testCtx, resyncPeriod, WithMakeWay(t, testCtx, opts)...)
}

// InitTestSchedulerWithNS starts an API server and a scheduler.
func InitTestSchedulerWithNS(t *testing.T, nsPrefix string, opts ...scheduler.Option) *TestContext {
	testCtx := InitTestSchedulerWithOptions(t, InitTestAPIServer(t, nsPrefix, nil), 0, opts...)
	SyncSchedulerInformerFactory(testCtx)
	go testCtx.Scheduler.Run(testCtx.SchedulerCtx)
	return testCtx
}

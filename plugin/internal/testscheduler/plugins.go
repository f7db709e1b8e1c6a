package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"makeway.dev/makeway/plugin/internal/minor"
)

// Names of the plugins in the scheduler's configuration.
const (
	aloofName   = "TestAloof"
	permitName  = "TestPermit"
	preBindName = "TestPreBind"
	bindName    = "TestBind"
)

// Annotations of pods. Durations are Go's ("2s").
const (
	// aloofAnnotation: the pod shares no node with a pod that has this value in its label aloofLabel.
	aloofAnnotation = "tests.makeway.dev/aloof-from"
	aloofLabel      = "tests.makeway.dev/shunned"
	// permitAnnotation: how long the pod waits in Permit, before it is rejected.
	permitAnnotation = "tests.makeway.dev/permit"
	// preBindAnnotation: how long PreBind takes; a cancelled context ends it at once.
	preBindAnnotation = "tests.makeway.dev/pre-bind"
	// deafAnnotation: how long PreBind takes, whatever becomes of its context.
	deafAnnotation = "tests.makeway.dev/deaf-pre-bind"
	// bindAnnotation: how long Bind takes, when nothing can call the pod back any more.
	bindAnnotation = "tests.makeway.dev/bind"
)

// aloof is a Filter plugin.
type aloof struct{}

var (
	_ fwk.FilterPlugin      = aloof{}
	_ fwk.EnqueueExtensions = aloof{}
)

func newAloof(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return aloof{}, nil }

func (aloof) Name() string { return aloofName }

// EventsToRegister says that a pod that leaves may help.
func (aloof) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}}}, nil
}

// Filter rejects a node while it holds a shunned pod.
func (aloof) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	shunned, ok := pod.Annotations[aloofAnnotation]
	if !ok {
		return nil
	}
	for _, other := range node.GetPods() {
		if other.GetPod().Labels[aloofLabel] == shunned {
			return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("the node holds a pod with the label %s=%s", aloofLabel, shunned))
		}
	}
	return nil
}

// permit is a Permit plugin.
type permit struct{}

var _ fwk.PermitPlugin = permit{}

func newPermit(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return permit{}, nil }

func (permit) Name() string { return permitName }

// Permit lets a pod wait.
func (permit) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if wait := annotated(pod, permitAnnotation); wait > 0 {
		return fwk.NewStatus(fwk.Wait), wait
	}
	return nil, 0
}

// preBind is a PreBind plugin.
type preBind struct{ minor.PreFlight }

var _ fwk.PreBindPlugin = preBind{}

func newPreBind(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	takes := func(pod *v1.Pod) bool { return annotated(pod, preBindAnnotation)+annotated(pod, deafAnnotation) != 0 }
	return preBind{minor.PreFlight{Takes: takes}}, nil
}

func (preBind) Name() string { return preBindName }

// PreBind holds a pod.
func (preBind) PreBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	time.Sleep(annotated(pod, deafAnnotation))
	select {
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	case <-time.After(annotated(pod, preBindAnnotation)):
		return nil
	}
}

// bind is a Bind plugin that only takes its time; the one after it binds.
type bind struct{}

var _ fwk.BindPlugin = bind{}

func newBind(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return bind{}, nil }

func (bind) Name() string { return bindName }

// Bind holds a pod.
func (bind) Bind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	time.Sleep(annotated(pod, bindAnnotation))
	return fwk.NewStatus(fwk.Skip)
}

// annotated is the duration in a pod's annotation, 0 where there is none.
func annotated(pod *v1.Pod, name string) time.Duration {
	duration, err := time.ParseDuration(pod.Annotations[name])
	if err != nil {
		return 0
	}
	return duration
}

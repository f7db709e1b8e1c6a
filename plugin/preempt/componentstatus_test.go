package preempt

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"

	"makeway.dev/makeway/plugin/wire"
)

func TestTheStatusSaysWhatIsInForceAndTheModeOfTheProfileThatMayDoMost(t *testing.T) {
	w, _, _ := simple(t, setup{args: func(args *MakeWayArgs) { args.Mode = wire.ModeOff }}, nil)
	engine := w.plugin.engine
	if status := engine.status(); status.Mode != wire.ModeOff || status.Revision != 0 || status.ClusterUID != "cluster" {
		t.Errorf("without a control state: %+v", status)
	}
	engine.addProfile(w.plugin.handle, wire.ModeEnforce)
	engine.addProfile(w.plugin.handle, wire.ModeObserve)
	w.tells(enforcing(7, func(s *wire.ControlState) {
		s.Mode = wire.ModeObserve
		s.PolicyRevision = "sha256:00ff"
		s.NamespaceModes = map[string]string{"shop": wire.ModeEnforce}
	}), start)

	status := engine.status()

	if status.Mode != wire.ModeObserve || status.OwnMode != wire.ModeEnforce || status.NamespaceModes["shop"] != wire.ModeEnforce {
		t.Errorf("modes of %+v", status)
	}
	if status.Revision != 7 || status.PolicyRevision != "sha256:00ff" || status.Trouble != "" {
		t.Errorf("got %+v", status)
	}
}

func TestTheStatusSaysWhichKubeSchedulerItIs(t *testing.T) {
	w, _, _ := simple(t, setup{}, nil)
	upstream := runtime.FuncForPC(reflect.ValueOf(defaultpreemption.New).Pointer())
	file, _ := upstream.FileLine(upstream.Entry()) // its path has the version of the module

	said := w.plugin.engine.status().Kubernetes

	if !strings.Contains(file, "k8s.io/kubernetes@v"+said+".") {
		t.Errorf("it says %q and is built from %s", said, file)
	}
}

// namedHandle is the handle of a profile of which no more is known than its name.
type namedHandle struct {
	fwk.Handle
	name string
}

func (h namedHandle) ProfileName() string { return h.name }

func TestTheStatusNamesTheProfilesWhosePodsTheQueueGateHolds(t *testing.T) {
	w, _, _ := simple(t, setup{args: func(args *MakeWayArgs) { args.Mode = wire.ModeOff }}, nil)
	engine := w.plugin.engine
	if gates := engine.status().QueueGates; len(gates) > 0 {
		t.Errorf("a profile in mode off holds no pods: %v", gates)
	}
	engine.addProfile(namedHandle{name: "second"}, wire.ModeEnforce)
	engine.addProfile(namedHandle{name: "first"}, wire.ModeEnforce)
	engine.addProfile(namedHandle{name: "watches"}, wire.ModeObserve)
	engine.addProfile(w.framework, wire.ModeEnforce) // this plugin is none of its PreEnqueue

	if gates := engine.status().QueueGates; !slices.Equal(gates, []string{"first", "second"}) {
		t.Errorf("got %v", gates)
	}
}

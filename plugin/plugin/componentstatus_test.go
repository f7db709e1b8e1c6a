package plugin

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"

	"makeway.dev/makeway/plugin/wire"
)

func TestTheStatusSaysWhatIsInForceAndTheModeOfTheProfileThatMayDoMost(t *testing.T) {
	w, _, _ := simple(t, setup{args: func(args *MakeWayArgs) { args.Mode = wire.ModeOff }}, nil)
	engine := w.plugin.engine
	if status := engine.status(); status.Mode != wire.ModeOff || status.Revision != 0 || status.ClusterUID != "cluster" {
		t.Errorf("without a control state: %+v", status)
	}
	engine.addProfile(wire.ModeEnforce)
	engine.addProfile(wire.ModeObserve)
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

func TestTheStatusNamesTheProfilesWhosePodsTheQueuesHold(t *testing.T) {
	without, _, _ := simple(t, setup{}, nil)
	with, _, _ := simple(t, setup{queues: true}, nil)
	observing, _, _ := simple(t, setup{queues: true, args: func(a *MakeWayArgs) { a.Mode = wire.ModeObserve }}, nil)
	for w, want := range map[*world][]string{without: nil, with: {"default-scheduler"}, observing: nil} {
		if gates := w.plugin.engine.status().QueueGates; !slices.Equal(gates, want) {
			t.Errorf("got %v, want %v", gates, want)
		}
	}
}

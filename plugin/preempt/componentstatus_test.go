package preempt

import (
	"testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestTheStatusSaysWhatIsInForceAndTheModeOfTheProfileThatMayDoMost(t *testing.T) {
	w, _, _ := simple(t, setup{args: func(args *MakeWayArgs) { args.Mode = wire.ModeOff }}, nil)
	engine := w.plugin.engine
	if status := engine.status(); status.Mode != wire.ModeOff || status.Revision != 0 || status.ClusterUID != "cluster" {
		t.Errorf("without a control state: %+v", status)
	}
	engine.profileMode(wire.ModeEnforce)
	engine.profileMode(wire.ModeObserve)
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

package plugin

import (
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
)

func TestEachEndingHasItsPair(t *testing.T) {
	const noResult = "no result"
	for kind, want := range map[outcomeKind]struct {
		node string
		code fwk.Code
	}{
		endNominated:    {"n1", fwk.Success},
		endRefused:      {"", fwk.UnschedulableAndUnresolvable},
		endUnverifiable: {"", fwk.UnschedulableAndUnresolvable},
		endHopeless:     {"", fwk.UnschedulableAndUnresolvable},
		endGroupHeld:    {"", fwk.UnschedulableAndUnresolvable},
		endUnaskable:    {"", fwk.UnschedulableAndUnresolvable},
		endInFlight:     {noResult, fwk.UnschedulableAndUnresolvable},
		endLeaving:      {"n1", fwk.UnschedulableAndUnresolvable},
		endNever:        {noResult, fwk.Unschedulable},
		endPodGroup:     {noResult, fwk.Unschedulable},
		endPlaced:       {noResult, fwk.Unschedulable},
		endOff:          {noResult, fwk.Unschedulable},
		endObserved:     {noResult, fwk.Unschedulable},
		endUnreachable:  {noResult, fwk.Unschedulable},
		endNotSynced:    {noResult, fwk.Unschedulable},
		endTooLarge:     {noResult, fwk.Unschedulable},
		endError:        {noResult, fwk.Unschedulable},
		endPanic:        {noResult, fwk.Unschedulable},
	} {
		t.Run(string(kind), func(t *testing.T) {
			result, status := preemptResult{kind: kind, node: "n1", message: "why"}.statusPair()

			if status.Code() != want.code {
				t.Errorf("code %s, want %s", status.Code(), want.code)
			}
			if want.node == noResult {
				if result != nil {
					t.Errorf("result %+v, want none, which keeps the nomination", result)
				}
				return
			}
			if result.Mode() != fwk.ModeOverride || result.NominatedNodeName != want.node {
				t.Errorf("result %+v, want an override with %q", result, want.node)
			}
			if status.Message() != "makeway: why" {
				t.Errorf("message %q", status.Message())
			}
		})
	}
}

func TestAWaitForAnothersVictimsKeepsTheNominationAsItIs(t *testing.T) {
	result, status := preemptResult{kind: endLeaving, message: "why"}.statusPair()

	if result != nil || status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("result %+v, status %v", result, status)
	}
}

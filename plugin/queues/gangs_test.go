//go:build !kube136 && !kube135

package queues

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"makeway.dev/makeway/plugin/wire"
)

// gangIn are so many pending members of one gang in a queue, each of which asks for 10 milli-CPU.
func gangIn(queue string, names ...string) (members []*v1.Pod) {
	for _, name := range names {
		member, gang := in(queue, name, mid, 10).Obj(), "gang"
		member.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &gang}
		members = append(members, member)
	}
	return members
}

// failedCycle runs a cycle of a gang of which the last member does not pass: the others give their places back.
func (w *gateWorld) failedCycle(members []*v1.Pod) {
	w.t.Helper()
	last := len(members) - 1
	for _, member := range members[:last] {
		if !w.enters(member) {
			w.t.Fatalf("%s does not pass the gate", member.Name)
		}
	}
	w.rejected(members[last])
	for _, member := range members[:last] {
		w.gate.Unreserve(member.UID)
	}
}

func TestAGangLargerThanItsQueueKeepsNoRoomFromOthersAndIsTriedAgainOnceTheMaxIsRaised(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 20))
	members := gangIn("root.a", "g1", "g2", "g3")
	w.shows(members...)
	w.failedCycle(members)
	w.activated()
	if kept := w.gate.check(in("root.a", "other", mid, 20).Obj(), wire.ModeEnforce); kept != nil {
		t.Errorf("another pod is kept out for the gang: %s", kept.Message())
	}

	w.failedCycle(members)
	w.clock.Step(time.Minute)
	w.limit(limit("root"), limit("root.a", "cpu", 30))

	if activated := w.activated(); len(activated) != 1 {
		t.Errorf("%v are activated, want g3", activated)
	}
}

func TestAMemberBesideItsRunningGangWaitsForItsOwnRoomAlone(t *testing.T) {
	members := gangIn("root.a", "g1", "g2", "g3")
	other := on(in("root.a", "other", mid, 10).Obj(), "n1")
	for name, leaves := range map[string]*v1.Pod{"another pod leaves": other, "one of its gang ends": members[0]} {
		t.Run(name, func(t *testing.T) {
			w := limited(t, limit("root"), limit("root.a", "cpu", 30))
			w.shows(other, on(members[0], "n1"), on(members[1], "n1"), members[2])
			w.rejected(members[2])
			if w.gate.Admit(members[2], wire.ModeEnforce) == nil {
				t.Fatal("it is not held")
			}

			w.deletes(leaves)

			if activated := w.activated(); len(activated) != 1 || activated[0] != "g3" {
				t.Errorf("%v are activated, want g3", activated)
			}
		})
	}
}

func TestAMemberThatItsMatesWereBoundWithoutWaitsForItsOwnRoomAlone(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 30))
	members := gangIn("root.a", "g1", "g2", "g3", "g4")
	w.shows(members...)
	for _, member := range members[:3] {
		if !w.enters(member) {
			t.Fatalf("%s does not pass the gate", member.Name)
		}
	}
	w.rejected(members[3])
	w.shows(on(members[0], "n1"), on(members[1], "n1"), on(members[2], "n1"))

	w.deletes(members[0])

	if activated := w.activated(); len(activated) != 1 || activated[0] != "g4" {
		t.Errorf("%v are activated, want g4", activated)
	}
}

func TestAMemberThatHadItsCycleBesideRunningMatesWaitsForItsOwnRoomAlone(t *testing.T) {
	w := limited(t, limit("root"), limit("root.a", "cpu", 30))
	low := on(in("root.a", "low", mid-1, 10).Obj(), "n1")
	members := gangIn("root.a", "g1", "g2", "g3")
	w.shows(low, on(members[0], "n1"), on(members[1], "n1"), members[2])
	w.rejected(members[2])
	w.gate.Tried(members[2].UID)

	w.deletes(members[0])

	if activated := w.activated(); len(activated) != 1 || activated[0] != "g3" {
		t.Errorf("%v are activated, want g3", activated)
	}
}

package preempt

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/internal/minor"
	"makeway.dev/makeway/plugin/rules"
	"makeway.dev/makeway/plugin/wire"
)

// onRecord is the record of tolerations with these entries.
func onRecord(entries map[string]string) runtime.Object {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "makeway-system", Name: rules.TolerationRecordName, ResourceVersion: "1"},
		Data:       entries,
	}
}

func recordRead(w *world) func() bool {
	return func() bool { return w.plugin.engine.control.tolerationRecord() != nil }
}

var steadyOnRecord = map[string]string{
	"steady": `{"metadata":{"annotations":{"` + rules.MinimumPreemptablePriority + `":"1000","` + rules.TolerationSeconds + `":"-1"}},"value":1}`,
}

func TestTheFallbackGoesByTheRecordWhereAPriorityClassIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		entries map[string]string
		want    string
	}{
		"it is on record":     {entries: steadyOnRecord, want: "n2"},
		"it is not on record": {want: "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			first := pod("preferred", "n1", 1, large).Obj()
			first.Spec.PriorityClassName = "steady"
			p := pod("p", "", 100, large).Obj()
			w := newWorld(t, setup{objects: []runtime.Object{onRecord(test.entries)}}, []*v1.Node{node("n1"), node("n2")}, p, first, pod("other", "n2", 2, large).Obj())
			w.tells(ruling(&wire.Rules{}), at(1))
			w.eventually("the record is read", recordRead(w))

			if got := nominatedNode(w.fallsBack(w.fallback(), p)); got != test.want {
				t.Errorf("nominated to %q, want %s", got, test.want)
			}
		})
	}
}

func TestTheFallbackHoldsGroupsWhileAToleratingClassIsOnRecord(t *testing.T) {
	g1 := gangMember("g1")
	w := newWorld(t, setup{objects: []runtime.Object{onRecord(steadyOnRecord)}}, []*v1.Node{node("n1")}, g1)
	w.tells(ruling(&wire.Rules{}), at(1))
	w.eventually("the PriorityClasses are read", w.plugin.engine.classesSynced)
	w.eventually("the record is read", recordRead(w))

	status := w.fallback().holdGroup(minor.Group{Namespace: "default", Name: "gang", Waiting: []*v1.Pod{g1}})

	if status == nil || !strings.Contains(status.Message(), "pods of PriorityClass steady, which is on record, tolerate preemption") {
		t.Errorf("%v", status)
	}
}

func TestARecordThatCannotBeDecodedChangesNothing(t *testing.T) {
	w := newWorld(t, setup{objects: []runtime.Object{onRecord(map[string]string{"steady": "{"})}}, []*v1.Node{node("n1")})
	w.plugin.engine.control.tolerations.Store(&storedTolerations{version: "0", record: rules.TolerationRecord{"other": nil}})

	w.plugin.engine.readTolerations(t.Context())

	if _, there := w.plugin.engine.control.tolerationRecord()["other"]; !there {
		t.Error("the record that was read before is gone")
	}
}

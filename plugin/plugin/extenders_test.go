package plugin

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"
)

// filter is an extender that has a filter alone.
type filter struct {
	tf.FakeExtender
	managed   string // what it manages: pods with this label; empty: all
	ignorable bool
	failed    extenderv1.FailedNodesMap
	never     extenderv1.FailedNodesMap
	err       error
	asked     [][]string
}

func (f *filter) Name() string             { return "filter" }
func (f *filter) IsFilter() bool           { return true }
func (f *filter) SupportsPreemption() bool { return false }
func (f *filter) IsIgnorable() bool        { return f.ignorable }
func (f *filter) IsInterested(pod *v1.Pod) bool {
	return f.managed == "" || pod.Labels[f.managed] != ""
}

func (f *filter) Filter(_ *v1.Pod, nodes []fwk.NodeInfo) (passed []fwk.NodeInfo, failed, never extenderv1.FailedNodesMap, err error) {
	var names []string
	for _, node := range nodes {
		name := node.Node().Name
		names = append(names, name)
		if f.failed[name] == "" && f.never[name] == "" {
			passed = append(passed, node)
		}
	}
	f.asked = append(f.asked, names)
	return passed, f.failed, f.never, f.err
}

// A victim is on each of two nodes; the plan prefers n1.
func filtered(t *testing.T, f *filter, labels ...string) (*world, *v1.Pod) {
	t.Helper()
	p, a, b := pod("p", "", high, large), pod("a", "n1", low, large), pod("b", "n2", mid, large)
	for _, label := range labels {
		p, a = p.Label(label, "1"), a.Label(label, "1")
	}
	w := newWorld(t, setup{extenders: []fwk.Extender{f}}, []*v1.Node{node("n1"), node("n2")}, p.Obj(), a.Obj(), b.Obj())
	w.bus.plan = answers(candidate("n1", "!a"), candidate("n2", "!b"))
	return w, p.Obj()
}

func TestAnExtendersFilterIsAskedOnceWithAllCandidatesAndANodeThatItRejectsHasFailed(t *testing.T) {
	f := &filter{failed: extenderv1.FailedNodesMap{"n1": "no device"}}
	w, p := filtered(t, f)

	expectVictims(t, w.nominated(p, "n2"), "b")

	if len(f.asked) != 1 || len(f.asked[0]) != 2 {
		t.Errorf("asked for %v", f.asked)
	}
}

func TestWhereExtendersRejectEachNodeNothingIsEvictedByWhomever(t *testing.T) {
	for name, f := range map[string]*filter{
		"for now":  {failed: extenderv1.FailedNodesMap{"n1": "no device", "n2": "no device"}},
		"for ever": {never: extenderv1.FailedNodesMap{"n1": "no device", "n2": "no device"}},
		"unless their victims have what it manages, which two do not": {
			managed: "gpu", failed: extenderv1.FailedNodesMap{"n2": "no device"}, never: extenderv1.FailedNodesMap{"n1": "no device"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := filtered(t, f, "gpu")

			result, status := w.cycle(p)

			if result == nil || result.NominatedNodeName != "" || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "2 node(s) were rejected by extender filter: no device") {
				t.Errorf("result %+v, status %v", result, status)
			}
			if w.plugin.engine.memory.Retries.Count() != 1 || len(f.asked) != 1 {
				t.Errorf("%d pods are tried again, asked %d times", w.plugin.engine.memory.Retries.Count(), len(f.asked))
			}
		})
	}
}

func TestANodeThatAnExtenderRejectsForWhatAVictimMayHaveIsTried(t *testing.T) {
	f := &filter{managed: "gpu", failed: extenderv1.FailedNodesMap{"n1": "no device", "n2": "no device"}}
	w, p := filtered(t, f, "gpu")

	expectVictims(t, w.nominated(p, "n1"), "a")
}

func TestAFilterThatFailsCountsUnlessItIsIgnorableOrNotInterested(t *testing.T) {
	for name, test := range map[string]struct {
		filter filter
		node   string
	}{
		"it answers 500":             {filter{err: errors.New("500")}, ""},
		"the same, and is ignorable": {filter{err: errors.New("500"), ignorable: true}, "n1"},
		"it is not interested":       {filter{managed: "gpu", err: errors.New("500")}, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := filtered(t, &test.filter)
			if test.node != "" {
				w.nominated(p, test.node)
				return
			}

			result, status := w.cycle(p)

			if result == nil || result.NominatedNodeName != "" || status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "extender filter: 500") {
				t.Errorf("result %+v, status %v", result, status)
			}
			if w.plugin.engine.memory.Retries.Count() != 1 {
				t.Error("it is not tried again")
			}
		})
	}
}

package ask

import (
	"fmt"
	"testing"

	"makeway.dev/makeway/plugin/wire"
)

func TestPodsAreAlikeThatTheSameNodesCouldHelp(t *testing.T) {
	all := Potential{Count: 3, Nodes: wire.NodeSelection{AllBut: true}}
	some := func(names ...string) Potential {
		return Potential{Count: 3 - len(names), Nodes: wire.NodeSelection{AllBut: true, Names: names}}
	}
	p := pod("p", "", 5, large).Obj()
	elsewhere := pod("p", "", 5, large).NodeSelector(map[string]string{"zone": "a"}).Obj()
	for name, test := range map[string]struct {
		nodes []Potential
		want  bool
	}{
		"one pod":                  {[]Potential{all}, false},
		"two pods":                 {[]Potential{all, all}, true},
		"names in another order":   {[]Potential{some("a", "b"), some("b", "a")}, true},
		"another node":             {[]Potential{some("a"), some("b")}, false},
		"more nodes":               {[]Potential{some("a"), all}, false},
		"the same nodes once more": {[]Potential{some("a"), some("b"), some("b")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewHistory()
			for _, nodes := range test.nodes {
				f.Needed(p, nodes)
			}

			nodes, ok := f.Nodes(p)
			if _, also := f.Nodes(elsewhere); also {
				t.Error("a pod that asks for other nodes is taken to be alike")
			}

			if ok != test.want || (ok && !nodes.equal(test.nodes[len(test.nodes)-1])) {
				t.Errorf("%v, %v", nodes, ok)
			}
		})
	}
}

func TestWhatIsRememberedOfPodsAlikeIsBounded(t *testing.T) {
	f := NewHistory()
	for i := range 2 * maxPrefetchClasses {
		f.Needed(pod("p", "", 5, large).Namespace(fmt.Sprint(i)).Obj(), Potential{Count: 1})
	}
	if f.classes.Len() != maxPrefetchClasses {
		t.Errorf("%d kinds", f.classes.Len())
	}
}

package verify

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestOnlyAPodAsTheDaemonSetControllerWritesItIsOfADaemonSet(t *testing.T) {
	terms := func(terms ...v1.NodeSelectorTerm) *v1.Pod {
		p := onlyOn(pod("p", "", low, small).Obj(), "")
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = terms
		return p
	}
	orphan := onlyOn(pod("p", "", low, small).Obj(), "n1")
	orphan.OwnerReferences[0].Kind = "ReplicaSet"
	forged := onlyOn(pod("p", "", low, small).Obj(), "n1")
	forged.OwnerReferences[0].APIVersion = "nonsense.example/v1"
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"as the controller writes it": {onlyOn(pod("p", "", low, small).Obj(), "n1"), "n1"},
		"the same node twice":         {terms(named("n1"), named("n1")), "n1"},
		"no DaemonSet":                {orphan, ""},
		"a kind of another group":     {forged, ""},
		"no affinity":                 {pod("p", "", low, small).Obj(), ""},
		"no term":                     {terms(), ""},
		"two nodes":                   {terms(named("n1", "n2")), ""},
		"another node too":            {terms(named("n1"), named("n2")), ""},
		"a term without a node too":   {terms(named("n1"), v1.NodeSelectorTerm{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DaemonSetNode(c.pod); got != c.want {
				t.Errorf("bound to %q, want %q", got, c.want)
			}
		})
	}
}

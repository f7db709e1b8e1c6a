//go:build !kube136 && !kube135

package minor

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/utils/ptr"
)

func TestAGroupsOwnPreemptionPolicyCountsWhereTheFeatureIsOn(t *testing.T) {
	may, never := schedulingv1beta1.PreemptLowerPriority, schedulingv1beta1.PreemptNever
	for name, c := range map[string]struct {
		own    *schedulingv1beta1.PreemptionPolicy
		pods   []*v1.PreemptionPolicy
		counts bool
		want   bool
	}{
		"on, the group never":                    {own: &never, counts: true, want: true},
		"on, the group preempts, its pods never": {own: &may, pods: []*v1.PreemptionPolicy{ptr.To(v1.PreemptNever)}, counts: true},
		"on, a group of before":                  {pods: []*v1.PreemptionPolicy{ptr.To(v1.PreemptNever)}, counts: true},
		"off, the group never":                   {own: &never, pods: []*v1.PreemptionPolicy{nil}},
		"off, the second pod never":              {pods: []*v1.PreemptionPolicy{nil, ptr.To(v1.PreemptNever)}, want: true},
		"off, no pod never":                      {pods: []*v1.PreemptionPolicy{nil, ptr.To(v1.PreemptLowerPriority)}},
	} {
		t.Run(name, func(t *testing.T) {
			group := &schedulingv1beta1.PodGroup{Spec: schedulingv1beta1.PodGroupSpec{PreemptionPolicy: c.own}}
			var waiting []*v1.Pod
			for _, policy := range c.pods {
				waiting = append(waiting, &v1.Pod{Spec: v1.PodSpec{PreemptionPolicy: policy}})
			}
			if got := neverPreempts(group, waiting, c.counts); got != c.want {
				t.Errorf("never preempts is %v", got)
			}
		})
	}
}

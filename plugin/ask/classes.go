package ask

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"makeway.dev/makeway/plugin/wire"
)

// errGroupTooLarge says that no question can be asked about a group.
var errGroupTooLarge = errors.New("the group is too large to be planned for")

// Class is members that are equal in all that the planner looks at, and the nodes where removing pods may help them.
type Class struct {
	Pods      []*v1.Pod // in the order in which the scheduler places them
	Potential Potential
}

// Classes puts a group's members into classes. Members differ by an index in their labels, for example those of a Job,
// and labels that no member's own rules name do not count: what others' rules make of them, the scheduler's filters tell. Nor do
// the names of claims that leave their pods the same nodes, as reach says: each member of a StatefulSet has claims of its own.
// labels: those that count in any case, since they name a queue.
// O(members · size of a pod).
func Classes(members []*v1.Pod, labels []string, reach func(namespace, claim string) string) ([]*Class, error) {
	if len(members) > wire.MostMembers {
		return nil, fmt.Errorf("%w: %d of its members wait, at most %d are planned for", errGroupTooLarge, len(members), wire.MostMembers)
	}
	named := labelsNamed(members, labels)
	byKey := map[string]*Class{}
	var classes []*Class
	for _, pod := range members {
		key, err := wire.Encode(likeness(pod, named, reach))
		if err != nil {
			return nil, fmt.Errorf("encode member: %w", err)
		}
		class := byKey[string(key)]
		if class == nil {
			if len(classes) == wire.MostMemberClasses {
				return nil, fmt.Errorf("%w: its members are of more than %d kinds", errGroupTooLarge, wire.MostMemberClasses)
			}
			class = &Class{}
			byKey[string(key)] = class
			classes = append(classes, class)
		}
		class.Pods = append(class.Pods, pod)
	}
	return classes, nil
}

// likeness is what two members of one class have in common.
func likeness(pod *v1.Pod, named sets.Set[string], reach func(namespace, claim string) string) *v1.Pod {
	like := project(pod)
	for _, volume := range like.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			claim.ClaimName = reach(pod.Namespace, claim.ClaimName)
		}
	}
	like.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Labels: map[string]string{}, Annotations: like.Annotations}
	for key := range named {
		if value, ok := pod.Labels[key]; ok {
			like.Labels[key] = value
		}
	}
	like.Status = v1.PodStatus{}
	return like
}

// labelsNamed are the keys of labels that affinity, anti-affinity or spread of any member looks at, and some others.
// O(members · their rules).
func labelsNamed(members []*v1.Pod, others []string) sets.Set[string] {
	named := sets.New(others...)
	selector := func(s *metav1.LabelSelector) {
		if s == nil {
			return
		}
		for key := range s.MatchLabels {
			named.Insert(key)
		}
		for _, expression := range s.MatchExpressions {
			named.Insert(expression.Key)
		}
	}
	terms := func(terms []v1.PodAffinityTerm) {
		for i := range terms {
			selector(terms[i].LabelSelector)
			named.Insert(terms[i].MatchLabelKeys...).Insert(terms[i].MismatchLabelKeys...)
		}
	}
	for _, pod := range members {
		if affinity := pod.Spec.Affinity; affinity != nil {
			if affinity.PodAffinity != nil {
				terms(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			}
			if affinity.PodAntiAffinity != nil {
				terms(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			}
		}
		for i := range pod.Spec.TopologySpreadConstraints {
			selector(pod.Spec.TopologySpreadConstraints[i].LabelSelector)
			named.Insert(pod.Spec.TopologySpreadConstraints[i].MatchLabelKeys...)
		}
	}
	return named
}

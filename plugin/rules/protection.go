package rules

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// Annotations of pods.
const (
	// Mirror marks the API's image of a static pod; only the kubelet can end the pod behind it.
	Mirror = v1.MirrorPodAnnotationKey
	// NeverEvict asks, with the value "true", never to be a victim. A policy says in which namespaces it is honoured.
	NeverEvict = "makeway.dev/never-evict"
)

// Everywhere stands for every namespace.
const Everywhere = "*"

// SystemCriticalPriority is the priority from which on Kubernetes' own classes begin.
const SystemCriticalPriority = 2_000_000_000

// Reasons for which a pod is no victim. The planner's records use the same names.
const (
	ReasonSystemCritical       = "system-critical"
	ReasonMirrorPod            = "mirror-pod"
	ReasonProtectedNamespace   = "protected-namespace"
	ReasonProtectedPriority    = "protected-priority"
	ReasonNeverEvict           = "never-evict"
	ReasonPreemptionToleration = "preemption-toleration"
	ReasonHardBudget           = "hard-budget"
)

// Namespaces is a set of namespaces: their names, or Everywhere.
type Namespaces map[string]struct{}

// NamespacesOf makes a set.
func NamespacesOf(names []string) Namespaces {
	set := make(Namespaces, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}

// Has reports whether a namespace is in the set.
func (n Namespaces) Has(namespace string) bool {
	_, named := n[namespace]
	_, all := n[Everywhere]
	return named || all
}

// Protection is what a policy says of pods that are never victims, whatever the preemptor.
type Protection struct {
	// Namespaces whose pods are never victims; by name alone.
	Namespaces Namespaces
	// MinimumPriority: pods of at least this priority are never victims. Nil: there is no such priority.
	MinimumPriority *int32
	// NeverEvict are the namespaces where the annotation of that name is honoured.
	NeverEvict Namespaces
}

// Protects returns the reason for which a pod is never a victim, empty where there is none. O(1).
func (p *Protection) Protects(victim *v1.Pod) string {
	if _, mirror := victim.Annotations[Mirror]; mirror {
		return ReasonMirrorPod
	}
	if _, named := p.Namespaces[victim.Namespace]; named {
		return ReasonProtectedNamespace
	}
	if p.MinimumPriority != nil && corev1helpers.PodPriority(victim) >= *p.MinimumPriority {
		return ReasonProtectedPriority
	}
	if victim.Annotations[NeverEvict] == "true" && p.NeverEvict.Has(victim.Namespace) {
		return ReasonNeverEvict
	}
	return ""
}

// SystemCritical reports whether a pod is of a system-critical priority and the preemptor's is not above it.
func SystemCritical(victim *v1.Pod, preemptorPriority int32) bool {
	priority := corev1helpers.PodPriority(victim)
	return priority >= SystemCriticalPriority && priority >= preemptorPriority
}

// Budgets are PodDisruptionBudgets by namespace, ready to be asked.
type Budgets map[string][]labels.Selector

// BudgetsOf takes those of some namespaces. A selector that cannot be read covers every pod of its namespace, as an
// empty one does for the API server. O(budgets).
func BudgetsOf(budgets []*policyv1.PodDisruptionBudget, namespaces Namespaces) Budgets {
	found := Budgets{}
	if len(namespaces) == 0 {
		return found
	}
	for _, budget := range budgets {
		if !namespaces.Has(budget.Namespace) || budget.Spec.Selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			selector = labels.Everything()
		}
		found[budget.Namespace] = append(found[budget.Namespace], selector)
	}
	return found
}

// Cover reports whether a budget counts a pod, whatever the budget allows now. O(budgets of the namespace).
func (b Budgets) Cover(pod *v1.Pod) bool {
	return slices.ContainsFunc(b[pod.Namespace], func(selector labels.Selector) bool { return selector.Matches(labels.Set(pod.Labels)) })
}

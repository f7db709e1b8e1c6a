package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels by which nodes form domains and pods are selected.
const (
	zoneLabel = "topology.kubernetes.io/zone"
	rackLabel = "example.com/rack"
	appLabel  = "app"
	tierLabel = "tier"
)

// began is when a random cluster's pods began to start; whole seconds, as the API has them.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	namespaces = []string{"default", "team-a", "team-b"}
	apps       = []string{"web", "db", "job"}
	tiers      = []string{"front", "back"}
)

// maker makes one random cluster. What it makes depends on the seed and the allowed kinds alone.
type maker struct {
	*rand.Rand
	c *Case
	// used are the host ports taken on each node; two of its pods cannot have the same.
	used map[string][]v1.ContainerPort
	// alike are the priorities of the pods of every node, where all nodes are alike but for when their pods started.
	alike []*int32
	// unmerged leaves labels that matchLabelKeys names out of selectors, as in a pod that is not stored yet.
	unmerged bool
}

func randomCase(ctx context.Context, seed uint64, allowed []string) (*Case, error) {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 0)), used: map[string][]v1.ContainerPort{}}
	m.c = &Case{Seed: seed, Constraints: someKinds(m.Rand, allowed)}
	m.makeNamespaces()
	if m.has(priorities) && m.has(resources) && m.chance(4) {
		for range 2 + m.IntN(4) {
			m.alike = append(m.alike, new(pick(m.Rand, int32(0), 0, 10, 10, 99)))
		}
	}
	for i := range m.size() {
		m.c.Nodes = append(m.c.Nodes, m.node(i))
	}
	m.makeBudgets()
	m.makeGroups()
	most := pick(m.Rand, 4, 8, 14)
	for _, node := range m.c.Nodes {
		for _, priority := range m.alike {
			pod := m.pod(priority, node.Name)
			pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
			m.place(pod, node.Name)
		}
		if m.alike != nil && !m.chance(8) {
			continue
		}
		for range m.IntN(2)*m.IntN(3) + m.IntN(most+1) {
			m.place(m.pod(m.priority(), node.Name), node.Name)
		}
	}
	m.makePending()
	return m.c, m.makePreemptor(ctx)
}

// size is the number of nodes: mostly few, where faults are easy to find, sometimes many.
func (m *maker) size() int {
	switch n := m.IntN(20); {
	case n < 12:
		return 1 + m.IntN(12)
	case n < 19:
		return 12 + m.IntN(60)
	default:
		return 72 + m.IntN(229)
	}
}

func (m *maker) has(kind string) bool { return slices.Contains(m.c.Constraints, kind) }

// chance is true with a probability of one in n.
func (m *maker) chance(n int) bool { return m.IntN(n) == 0 }

func (m *maker) makeNamespaces() {
	for i, name := range namespaces {
		m.c.Namespaces = append(m.c.Namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("namespace-" + name),
			Labels: map[string]string{"kubernetes.io/metadata.name": name, "team": fmt.Sprint(i % 2)},
		}})
	}
}

func (m *maker) node(i int) *v1.Node {
	name := fmt.Sprintf("n%03d", i)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("node-" + name),
		Labels: map[string]string{v1.LabelHostname: name},
	}}
	if !m.chance(12) { // some nodes belong to no zone
		node.Labels[zoneLabel] = fmt.Sprint("z", m.IntN(1+m.IntN(5)))
	}
	if !m.chance(6) {
		node.Labels[rackLabel] = fmt.Sprint("r", m.IntN(8))
	}
	pods := 110
	if m.has(podCounts) {
		pods = 1 + m.IntN(8)
	}
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourcePods:             *resource.NewQuantity(int64(pods), resource.DecimalSI),
		v1.ResourceCPU:              resource.MustParse(pick(m.Rand, "1", "1500m", "2", "4")),
		v1.ResourceMemory:           resource.MustParse(pick(m.Rand, "1Gi", "2Gi", "4Gi", "3500M")),
		v1.ResourceEphemeralStorage: resource.MustParse(pick(m.Rand, "0", "5Gi", "20Gi")),
	}
	if m.alike != nil {
		node.Status.Allocatable[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(250*len(m.alike)), resource.DecimalSI)
	}
	if m.has(extended) {
		for _, name := range few(m.Rand, 0.5, extendedResources...) {
			node.Status.Allocatable[name] = resource.MustParse(pick(m.Rand, "0", "1", "2", "8"))
		}
	}
	m.restrict(node)
	return node
}

// priority is that of a pod that is not the preemptor.
func (m *maker) priority() *int32 {
	if !m.has(priorities) {
		return new(int32(0))
	}
	if m.chance(8) { // not to be removed
		return pick(m.Rand, new(int32(100)), new(int32(2000)), new(int32(2000001000)))
	}
	return pick(m.Rand, nil, new(int32(-2147483648)), new(int32(-100)), new(int32(-1)), new(int32(0)), new(int32(0)),
		new(int32(10)), new(int32(10)), new(int32(10)), new(int32(99)))
}

// pod makes a pod of any namespace. The node is where it will be, empty for none.
func (m *maker) pod(priority *int32, node string) *v1.Pod {
	name := fmt.Sprintf("p%04d", len(m.c.Pods))
	// UIDs are in no relation to the order in which pods are made.
	uid := fmt.Sprintf("%08x-%s", m.Uint32(), name)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pick(m.Rand, namespaces...), Name: name, UID: types.UID(uid),
			CreationTimestamp: metav1.NewTime(began),
		},
		Spec:   v1.PodSpec{Priority: priority, SchedulerName: v1.DefaultSchedulerName},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	if !m.chance(8) {
		pod.Labels = map[string]string{appLabel: pick(m.Rand, apps...), tierLabel: pick(m.Rand, tiers...)}
	}
	m.request(pod)
	if m.has(hostPorts) && m.chance(3) {
		m.bindPorts(pod, node)
	}
	if m.has(existingAnti) && m.chance(5) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: m.terms(pod, 1),
		}}
	}
	return pod
}

// place puts a pod on its node: running, starting, leaving, or assumed.
func (m *maker) place(pod *v1.Pod, node string) {
	m.c.Pods = append(m.c.Pods, pod)
	if m.has(assumed) && m.chance(6) {
		if m.c.Assumed == nil {
			m.c.Assumed = map[string]string{}
		}
		m.c.Assumed[string(pod.UID)] = node
		return
	}
	// makeway keeps a group that goes whole while a pod of it is being bound.
	m.join(pod)
	pod.Spec.NodeName = node
	if !m.chance(10) {
		pod.Status.Phase = v1.PodRunning
		// Few moments, so that many pods are equally important.
		pod.Status.StartTime = &metav1.Time{Time: began.Add(time.Duration(m.IntN(20)) * time.Second)}
	}
	// Spreads do not count them.
	// A pod of a group that goes whole is drawn without: makeway takes the rest of it, kube-scheduler all.
	if (m.has(terminating) || m.has(topologySpread)) && !m.has("pod-groups") && m.chance(5) {
		pod.DeletionTimestamp = &metav1.Time{Time: pick(m.Rand, ends...)}
		pod.DeletionGracePeriodSeconds = new(int64(30))
		if m.chance(2) {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler}}
		}
	}
	if m.has(shapes) && countsAsMakeWay {
		m.resize(pod)
	}
}

// makePending adds pods that wait, some of them nominated to a node.
func (m *maker) makePending() {
	for range m.IntN(4) {
		m.c.Pods = append(m.c.Pods, m.pod(m.priority(), ""))
	}
	if !m.has(nominated) {
		return
	}
	for _, node := range few(m.Rand, 0.3, m.c.Nodes...) {
		for range 1 + m.IntN(2) {
			pod := m.pod(pick(m.Rand, new(int32(-5)), new(int32(99)), new(int32(100)), new(int32(5000))), "")
			pod.Status.NominatedNodeName = node.Name
			m.c.Pods = append(m.c.Pods, pod)
		}
	}
}

func (m *maker) makePreemptor(ctx context.Context) error {
	m.unmerged = true
	pod := m.pod(new(int32(100)), "")
	m.askForMuch(pod)
	m.claimPorts(pod)
	m.demand(pod)
	m.asWritten(pod)
	stored, err := admitted(ctx, pod)
	if err != nil {
		return err
	}
	m.c.Written, m.c.Preemptor = pod, stored
	m.c.Pods = append(m.c.Pods, stored)
	return nil
}

// makeBudgets adds PodDisruptionBudgets, some with selectors that match nothing.
func (m *maker) makeBudgets() {
	if !m.has(budgets) {
		return
	}
	oneEach := len(kindsOfGroups) > 0 && m.chance(2) // of several for one pod this version charges one
	for i := range 1 + m.IntN(6) {
		name := fmt.Sprint("budget-", i)
		budget := &policy.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: pick(m.Rand, namespaces...), Name: name, UID: types.UID(name)},
			Spec:       policy.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: m.selector()},
			Status:     policy.PodDisruptionBudgetStatus{DisruptionsAllowed: max(0, m.Int32N(5)-1)},
		}
		switch m.IntN(12) {
		case 0:
			budget.Spec.Selector = nil
		case 1:
			budget.Spec.Selector = &metav1.LabelSelector{}
		case 2:
			budget.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: appLabel, Operator: "Near"}}
		}
		for range m.IntN(4) {
			if budget.Status.DisruptedPods == nil {
				budget.Status.DisruptedPods = map[string]metav1.Time{}
			}
			budget.Status.DisruptedPods[fmt.Sprintf("p%04d", m.IntN(20))] = metav1.NewTime(began)
		}
		if oneEach && slices.ContainsFunc(m.c.Budgets, func(b *policy.PodDisruptionBudget) bool { return b.Namespace == budget.Namespace }) {
			continue
		}
		m.c.Budgets = append(m.c.Budgets, budget)
	}
}

// selector selects some pods, sometimes all.
func (m *maker) selector() *metav1.LabelSelector {
	switch m.IntN(7) {
	case 0:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: appLabel, Operator: metav1.LabelSelectorOpExists}}}
	case 1:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: appLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{pick(m.Rand, apps...)}},
		}}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: appLabel, Operator: metav1.LabelSelectorOpIn, Values: apps[m.IntN(2):]},
		}}
	case 3:
		return &metav1.LabelSelector{
			MatchLabels:      map[string]string{tierLabel: pick(m.Rand, tiers...)},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: appLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
		}
	case 4:
		return &metav1.LabelSelector{MatchLabels: map[string]string{tierLabel: pick(m.Rand, tiers...)}}
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: pick(m.Rand, apps...)}}
	}
}

package main

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// restrict gives a node what keeps pods away, whoever is removed from it.
func (m *maker) restrict(node *v1.Node) {
	node.Labels["disk"] = pick(m.Rand, "ssd", "hdd")
	node.Labels["generation"] = fmt.Sprint(1 + m.IntN(4))
	node.Spec.Unschedulable = m.has(unschedulable) && m.chance(8)
	// Spreads count tainted nodes by a policy of their own.
	if m.has(taints) && m.chance(5) || m.has(topologySpread) && m.chance(4) {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{
			Key: pick(m.Rand, "dedicated", "dedicated", "spot", "spot", v1.TaintNodeNotReady), Value: pick(m.Rand, "", "x"),
			Effect: pick(m.Rand, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule),
		})
	}
}

// demand gives the preemptor its constraints.
func (m *maker) demand(pod *v1.Pod) {
	pod.Spec.Affinity = &v1.Affinity{}
	if m.has(taints) && m.chance(2) {
		pod.Spec.Tolerations = m.tolerations()
	}
	if m.has(unschedulable) && m.chance(4) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists})
	}
	m.selectNodes(pod)
	if m.has(podAffinity) {
		pod.Spec.Affinity.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: m.terms(pod, 2)}
	}
	if m.has(podAntiAffinity) {
		pod.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: m.terms(pod, 2)}
	}
	if m.has(topologySpread) {
		for _, key := range few(m.Rand, 0.5, zoneLabel, v1.LabelHostname, rackLabel) {
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, m.spread(pod, key))
		}
	}
	if m.has(readWriteOnce) {
		m.claim(pod)
	}
	if m.has(volumes) {
		m.mount(pod)
	}
}

// tolerations are of taints of any value, or of one.
func (m *maker) tolerations() []v1.Toleration {
	var list []v1.Toleration
	for range 1 + m.IntN(2) {
		toleration := v1.Toleration{Key: pick(m.Rand, "dedicated", "dedicated", "spot", "spot", "", "", v1.TaintNodeNotReady), Operator: v1.TolerationOpExists}
		if toleration.Key != "" && m.chance(2) {
			toleration.Operator, toleration.Value = pick(m.Rand, v1.TolerationOpEqual, ""), pick(m.Rand, "", "x", "x", "y")
		}
		toleration.Effect = pick(m.Rand, "", "", v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute)
		list = append(list, toleration)
	}
	return list
}

// selectNodes gives the preemptor node selectors, node affinity, or affinity to nodes by name.
func (m *maker) selectNodes(pod *v1.Pod) {
	var terms []v1.NodeSelectorTerm
	if m.has(nodeAffinity) {
		if m.chance(3) {
			pod.Spec.NodeSelector = map[string]string{"disk": pick(m.Rand, "ssd", "hdd")}
		}
		for range m.IntN(3) {
			terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{m.nodeRequirement()}})
		}
	}
	if m.has(nodeNames) && m.chance(2) {
		operator := pick(m.Rand, v1.NodeSelectorOpIn, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn)
		for range 1 + m.IntN(3) {
			name := pick(m.Rand, m.c.Nodes...).Name
			terms = append(terms, v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: operator, Values: []string{name}},
			}})
		}
	}
	if len(terms) > 0 {
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
		}
	}
}

func (m *maker) nodeRequirement() v1.NodeSelectorRequirement {
	switch m.IntN(5) {
	case 0:
		return v1.NodeSelectorRequirement{Key: "generation", Operator: v1.NodeSelectorOpGt, Values: []string{"1"}}
	case 1:
		return v1.NodeSelectorRequirement{Key: "generation", Operator: v1.NodeSelectorOpLt, Values: []string{"4"}}
	case 2:
		return v1.NodeSelectorRequirement{Key: zoneLabel, Operator: v1.NodeSelectorOpNotIn, Values: []string{"z1"}}
	case 3:
		return v1.NodeSelectorRequirement{Key: rackLabel, Operator: v1.NodeSelectorOpExists}
	default:
		return v1.NodeSelectorRequirement{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: []string{"ssd"}}
	}
}

// terms are required terms of affinity or anti-affinity, as the API server stores them: the labels that
// matchLabelKeys names are in the selector.
func (m *maker) terms(pod *v1.Pod, most int) []v1.PodAffinityTerm {
	var terms []v1.PodAffinityTerm
	for range 1 + m.IntN(most) {
		term := v1.PodAffinityTerm{LabelSelector: m.selector(), TopologyKey: pick(m.Rand, v1.LabelHostname, zoneLabel, zoneLabel, rackLabel)}
		if m.chance(12) {
			term.LabelSelector = nil // matches nothing
		}
		switch m.IntN(5) {
		case 0:
			term.Namespaces = few(m.Rand, 0.6, namespaces...)
		case 1:
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(m.IntN(2))}}
		case 2:
			term.NamespaceSelector = &metav1.LabelSelector{} // all
		case 3:
			term.Namespaces = []string{pick(m.Rand, namespaces...)}
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "1"}}
		}
		if m.chance(5) && term.LabelSelector != nil {
			if m.chance(2) {
				term.MatchLabelKeys = []string{tierLabel}
				m.merge(term.LabelSelector, pod, tierLabel, metav1.LabelSelectorOpIn)
			} else {
				term.MismatchLabelKeys = []string{tierLabel}
				m.merge(term.LabelSelector, pod, tierLabel, metav1.LabelSelectorOpNotIn)
			}
		}
		terms = append(terms, term)
	}
	return terms
}

// merge adds the pod's own value of a label to a selector, where it has one, as the API server does.
func (m *maker) merge(selector *metav1.LabelSelector, pod *v1.Pod, key string, operator metav1.LabelSelectorOperator) {
	if value, ok := pod.Labels[key]; ok && !m.unmerged {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
	}
}

// spread is a constraint that must hold, or in one case of eight one that may not.
func (m *maker) spread(pod *v1.Pod, key string) v1.TopologySpreadConstraint {
	constraint := v1.TopologySpreadConstraint{
		MaxSkew:            1 + m.Int32N(3),
		TopologyKey:        key,
		WhenUnsatisfiable:  v1.DoNotSchedule,
		LabelSelector:      m.selector(),
		NodeAffinityPolicy: pick(m.Rand, nil, new(v1.NodeInclusionPolicyHonor), new(v1.NodeInclusionPolicyIgnore)),
		NodeTaintsPolicy:   pick(m.Rand, nil, nil, new(v1.NodeInclusionPolicyHonor), new(v1.NodeInclusionPolicyIgnore)),
	}
	if m.chance(8) {
		constraint.WhenUnsatisfiable = v1.ScheduleAnyway
	} else if m.chance(2) {
		constraint.MinDomains = new(1 + pick(m.Rand, m.Int32N(6), m.Int32N(int32(len(m.c.Nodes)+2))))
	}
	if m.chance(3) {
		constraint.MatchLabelKeys = []string{tierLabel}
		if m.chance(2) { // servers before 1.34 leave the merging to the scheduler
			m.merge(constraint.LabelSelector, pod, tierLabel, metav1.LabelSelectorOpIn)
		}
	}
	return constraint
}

// bindPorts gives a pod host ports that none on its node has.
func (m *maker) bindPorts(pod *v1.Pod, node string) {
	for range 1 + m.IntN(2) {
		port := m.port()
		if slices.ContainsFunc(m.used[node], func(other v1.ContainerPort) bool { return clash(port, other) }) {
			continue
		}
		if node != "" {
			m.used[node] = append(m.used[node], port)
		}
		m.expose(pod, port)
	}
}

// expose gives a port to a container of a pod: mostly to the first, else to a sidecar, or to an init container, whose ports
// do not count.
func (m *maker) expose(pod *v1.Pod, port v1.ContainerPort) {
	if !m.chance(3) {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, port)
		return
	}
	initial := container(fmt.Sprint("ports-", len(pod.Spec.InitContainers)), nil)
	initial.Ports = []v1.ContainerPort{port}
	if !m.chance(4) {
		initial.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	}
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, initial)
}

// claimPorts gives the preemptor host ports, whoever has them.
func (m *maker) claimPorts(pod *v1.Pod) {
	if !m.has(hostPorts) {
		return
	}
	pod.Spec.Containers[0].Ports = nil
	for range 1 + m.IntN(3) {
		m.expose(pod, m.port())
	}
}

func (m *maker) port() v1.ContainerPort {
	number := pick(m.Rand, int32(80), 443, 8080)
	return v1.ContainerPort{
		ContainerPort: number,
		HostPort:      number,
		HostIP:        pick(m.Rand, "", "", "0.0.0.0", "127.0.0.1", "10.0.0.1"),
		Protocol:      pick(m.Rand, v1.ProtocolTCP, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP),
	}
}

func clash(a, b v1.ContainerPort) bool {
	anywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	return a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || anywhere(a.HostIP) || anywhere(b.HostIP))
}

// claim gives the preemptor claims that one pod alone may use; some other pod of its namespace may have
// got there first. No two namespaces have a claim of the same name: see the list of allowed differences.
func (m *maker) claim(pod *v1.Pod) {
	var users []*v1.Pod
	for _, other := range m.c.Pods {
		if _, isAssumed := m.c.Assumed[string(other.UID)]; other.Namespace == pod.Namespace && (isAssumed || other.Spec.NodeName != "") {
			users = append(users, other)
		}
	}
	for i := range 1 + m.IntN(2) {
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprint("claim-", i), UID: types.UID(fmt.Sprint("claim-", i))},
			Spec:       v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{pick(m.Rand, v1.ReadWriteOncePod, v1.ReadWriteOncePod, v1.ReadWriteOnce)}},
		}
		m.c.Claims = append(m.c.Claims, claim)
		m.use(pod, claim.Name)
		if len(users) > 0 && !m.chance(4) {
			m.use(pick(m.Rand, users...), claim.Name)
		}
	}
}

func (m *maker) use(pod *v1.Pod, claim string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
}

// mount gives the preemptor claims that are bound to volumes of some nodes or zones, and binds those that it has.
func (m *maker) mount(pod *v1.Pod) {
	for i := range 1 + m.IntN(2) {
		name := fmt.Sprint("data-", i)
		m.c.Claims = append(m.c.Claims, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name, UID: types.UID(name)},
		})
		m.use(pod, name)
	}
	for _, claim := range m.c.Claims {
		volume := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "volume-" + claim.Name, UID: types.UID("volume-" + claim.Name), Labels: map[string]string{}},
			Status:     v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
		}
		if m.chance(2) {
			key := pick(m.Rand, zoneLabel, zoneLabel, "failure-domain.beta.kubernetes.io/zone")
			volume.Labels[key] = pick(m.Rand, "z0", "z1", "z0__z1", "z2__ z3", "z0__")
		}
		if m.chance(2) {
			var terms []v1.NodeSelectorTerm
			for range 1 + m.IntN(2) {
				terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{m.nodeRequirement()}})
			}
			if m.chance(4) {
				name := pick(m.Rand, m.c.Nodes...).Name
				terms = []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{name}},
				}}}
			}
			volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
		}
		claim.Spec.VolumeName = volume.Name
		claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		claim.Status.Phase = v1.ClaimBound
		m.c.Volumes = append(m.c.Volumes, volume)
	}
}

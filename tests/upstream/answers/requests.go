package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var extendedResources = []v1.ResourceName{"example.com/gpu", "example.com/fpga", v1.ResourceHugePagesPrefix + "2Mi"}

// amounts asks for some of what nodes offer. Sizes are few, so that pods stand in for one another.
func (m *maker) amounts() v1.ResourceList {
	list := v1.ResourceList{}
	if m.has(resources) {
		if !m.chance(6) {
			list[v1.ResourceCPU] = resource.MustParse(pick(m.Rand, "100m", "250m", "250m", "500m", "1", "0.3333"))
		}
		if !m.chance(4) {
			list[v1.ResourceMemory] = resource.MustParse(pick(m.Rand, "128Mi", "256Mi", "512Mi", "1Gi", "300M", "0"))
		}
		if m.chance(5) {
			list[v1.ResourceEphemeralStorage] = resource.MustParse(pick(m.Rand, "1Gi", "4Gi"))
		}
	}
	if m.has(extended) && m.chance(3) {
		list[pick(m.Rand, extendedResources...)] = resource.MustParse(pick(m.Rand, "1", "1", "2"))
	}
	return list
}

func container(name string, requests v1.ResourceList) v1.Container {
	return v1.Container{Name: name, Image: "pause", Resources: v1.ResourceRequirements{Requests: requests}}
}

// request gives a pod its containers.
func (m *maker) request(pod *v1.Pod) {
	pod.Spec.Containers = []v1.Container{container("main", m.amounts())}
	if !m.has(shapes) {
		return
	}
	for i := range m.IntN(2) {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprint("more-", i), m.amounts()))
	}
	for i := range m.IntN(4) {
		initial := container(fmt.Sprint("init-", i), m.amounts())
		if m.chance(2) {
			initial.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, initial)
	}
	if m.chance(4) {
		pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m"), v1.ResourceMemory: resource.MustParse("16Mi")}
	}
	if m.has(resources) && m.chance(4) {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{}}
		if m.chance(2) {
			pod.Spec.Resources.Requests[v1.ResourceCPU] = resource.MustParse(pick(m.Rand, "500m", "1", "2"))
		}
		if m.chance(2) {
			pod.Spec.Resources.Requests[v1.ResourceMemory] = resource.MustParse(pick(m.Rand, "512Mi", "1Gi"))
		}
	}
}

// resize gives a running pod the status of a resize in place: under way, deferred, or infeasible.
func (m *maker) resize(pod *v1.Pod) {
	if !m.chance(3) {
		return
	}
	for _, c := range pod.Spec.Containers {
		status := v1.ContainerStatus{Name: c.Name}
		if m.chance(2) {
			status.AllocatedResources = m.amounts()
		}
		if !m.chance(4) {
			status.Resources = &v1.ResourceRequirements{Requests: m.amounts()}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	for _, c := range pod.Spec.InitContainers {
		if m.chance(2) {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, v1.ContainerStatus{
				Name: c.Name, AllocatedResources: m.amounts(), Resources: &v1.ResourceRequirements{Requests: m.amounts()},
			})
		}
	}
	if m.chance(2) {
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{
			Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: pick(m.Rand, v1.PodReasonInfeasible, v1.PodReasonDeferred),
		})
	}
	if pod.Spec.Resources != nil && m.chance(2) {
		pod.Status.Resources = &v1.ResourceRequirements{Requests: m.amounts()}
		pod.Status.AllocatedResources = m.amounts()
	}
}

// askForMuch gives the preemptor so large a request that few nodes have room as they are.
func (m *maker) askForMuch(pod *v1.Pod) {
	requests := pod.Spec.Containers[0].Resources.Requests
	if m.has(resources) {
		requests[v1.ResourceCPU] = resource.MustParse(pick(m.Rand, "500m", "750m", "1", "1", "1500m", "2"))
		if m.chance(2) {
			requests[v1.ResourceMemory] = resource.MustParse(pick(m.Rand, "512Mi", "1Gi", "2Gi", "2Gi"))
		}
		if m.chance(8) {
			delete(requests, v1.ResourceCPU)
		}
	}
	if m.has(extended) && m.chance(2) {
		requests[pick(m.Rand, extendedResources...)] = resource.MustParse(pick(m.Rand, "1", "2", "4"))
	}
}

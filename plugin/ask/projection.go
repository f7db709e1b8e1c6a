package ask

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// annotationsRead are those annotations of a pod that the planner reads (core/src/makeway/core/policy/facts.py).
var annotationsRead = [...]string{
	v1.MirrorPodAnnotationKey, "makeway.dev/never-evict", "yunikorn.apache.org/allow-preemption", "yunikorn.apache.org/app-id", "applicationId",
}

// project is a pod with what the planner reads and nothing else: no environment, commands or contents of volumes, which may
// hold secrets and make a question large. It follows the planner's view of a pod, Pod in core/src/makeway/core/k8s/objects.py;
// bus/testdata/pods holds both to one another.
func project(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{ObjectMeta: projectMetadata(&pod.ObjectMeta), Spec: projectSpec(&pod.Spec), Status: projectStatus(&pod.Status)}
}

func projectMetadata(from *metav1.ObjectMeta) metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{
		Name: from.Name, Namespace: from.Namespace, UID: from.UID, ResourceVersion: from.ResourceVersion, Generation: from.Generation,
		CreationTimestamp: from.CreationTimestamp, DeletionTimestamp: from.DeletionTimestamp, DeletionGracePeriodSeconds: from.DeletionGracePeriodSeconds,
		Labels: from.Labels, OwnerReferences: from.OwnerReferences, Finalizers: from.Finalizers,
	}
	for _, name := range annotationsRead {
		if value, ok := from.Annotations[name]; ok {
			if metadata.Annotations == nil {
				metadata.Annotations = map[string]string{}
			}
			metadata.Annotations[name] = value
		}
	}
	return metadata
}

func projectSpec(from *v1.PodSpec) v1.PodSpec {
	spec := v1.PodSpec{
		NodeName: from.NodeName, Priority: from.Priority, PriorityClassName: from.PriorityClassName, PreemptionPolicy: from.PreemptionPolicy,
		SchedulerName: from.SchedulerName, TerminationGracePeriodSeconds: from.TerminationGracePeriodSeconds, HostNetwork: from.HostNetwork,
		Containers: projectContainers(from.Containers), InitContainers: projectContainers(from.InitContainers), Overhead: from.Overhead,
		NodeSelector: from.NodeSelector, Affinity: projectAffinity(from.Affinity), Tolerations: from.Tolerations,
		TopologySpreadConstraints: from.TopologySpreadConstraints,
	}
	if from.Resources != nil {
		spec.Resources = &v1.ResourceRequirements{Requests: from.Resources.Requests, Limits: from.Resources.Limits}
	}
	for i := range from.Volumes {
		switch volume := &from.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			claim := &v1.PersistentVolumeClaimVolumeSource{ClaimName: volume.PersistentVolumeClaim.ClaimName}
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: volume.Name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}})
		case volume.Ephemeral != nil: // its claim is named after the pod and the volume
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: volume.Name, VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
		}
	}
	return spec
}

func projectContainers(from []v1.Container) []v1.Container {
	var containers []v1.Container
	for i := range from {
		container := v1.Container{
			Name: from[i].Name, RestartPolicy: from[i].RestartPolicy,
			Resources: v1.ResourceRequirements{Requests: from[i].Resources.Requests, Limits: from[i].Resources.Limits},
		}
		for _, port := range from[i].Ports {
			container.Ports = append(container.Ports, v1.ContainerPort{HostPort: port.HostPort, HostIP: port.HostIP, Protocol: port.Protocol})
		}
		containers = append(containers, container)
	}
	return containers
}

// projectAffinity is what is required; what is preferred keeps no pod from a node.
func projectAffinity(from *v1.Affinity) *v1.Affinity {
	if from == nil {
		return nil
	}
	affinity := &v1.Affinity{}
	if nodes := from.NodeAffinity; nodes != nil {
		affinity.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: nodes.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	if pods := from.PodAffinity; pods != nil {
		affinity.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: pods.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	if pods := from.PodAntiAffinity; pods != nil {
		affinity.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: pods.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	return affinity
}

func projectStatus(from *v1.PodStatus) v1.PodStatus {
	return v1.PodStatus{
		Phase: from.Phase, NominatedNodeName: from.NominatedNodeName, StartTime: from.StartTime, Conditions: from.Conditions,
		ContainerStatuses: projectStatuses(from.ContainerStatuses), InitContainerStatuses: projectStatuses(from.InitContainerStatuses),
		AllocatedResources: from.AllocatedResources, Resources: from.Resources, Resize: from.Resize,
	}
}

func projectStatuses(from []v1.ContainerStatus) []v1.ContainerStatus {
	var statuses []v1.ContainerStatus
	for i := range from {
		statuses = append(statuses, v1.ContainerStatus{Name: from[i].Name, AllocatedResources: from[i].AllocatedResources, Resources: from[i].Resources})
	}
	return statuses
}

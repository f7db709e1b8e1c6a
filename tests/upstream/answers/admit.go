package main

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // defaults and conversions
	registry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
)

// admitted is a pod as the API server stores what was written: with its defaults, the default tolerations, and the labels
// that matchLabelKeys names in the selectors.
func admitted(ctx context.Context, written *v1.Pod) (*v1.Pod, error) {
	defaulted := written.DeepCopy()
	legacyscheme.Scheme.Default(defaulted)
	pod := &api.Pod{}
	if err := legacyscheme.Scheme.Convert(defaulted, pod, nil); err != nil {
		return nil, fmt.Errorf("pod as written: %w", err)
	}
	tolerations := defaulttolerationseconds.NewDefaultTolerationSeconds()
	tolerations.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	create := admission.NewAttributesRecord(pod, nil, api.Kind("Pod").WithVersion("version"), pod.Namespace, pod.Name,
		api.Resource("pods").WithVersion("version"), "", admission.Create, &metav1.CreateOptions{}, false, nil)
	if err := tolerations.Admit(ctx, create, nil); err != nil {
		return nil, fmt.Errorf("default tolerations: %w", err)
	}
	registry.Strategy.PrepareForCreate(ctx, pod)
	stored := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, stored, nil); err != nil {
		return nil, fmt.Errorf("pod as stored: %w", err)
	}
	return stored, nil
}

// asWritten makes a pod one as people write it: limits without requests, and ports on the host's network.
func (m *maker) asWritten(pod *v1.Pod) {
	limit := func(resources *v1.ResourceRequirements) {
		resources.Limits, resources.Requests = resources.Requests, nil
	}
	pod.Spec.HostNetwork = m.has(hostPorts) && m.chance(4)
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if m.chance(4) {
				limit(&containers[i].Resources)
			}
			for name, pages := range containers[i].Resources.Requests {
				if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) { // the API server takes none without a limit
					containers[i].Resources.Limits = v1.ResourceList{name: pages}
				}
			}
			for j := range containers[i].Ports {
				if pod.Spec.HostNetwork {
					containers[i].Ports[j].HostPort = 0
				}
			}
		}
	}
	if pod.Spec.Resources == nil || m.chance(3) {
		return
	}
	limit(pod.Spec.Resources)
	for i := range pod.Spec.Containers {
		if m.chance(2) {
			pod.Spec.Containers[i].Resources = v1.ResourceRequirements{}
		}
	}
}

//go:build !kube136 && !kube135

package minor

import (
	"slices"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// The lines of docs/scheduler.md for Kubernetes 1.37.
const groupProfile = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        disabled: [{ name: DefaultPreemption }]
      preEnqueue:
        enabled: [{ name: DefaultPreemption }]
      podGroupPostFilter:
        enabled: [{ name: DynamicResources }, { name: DefaultPreemption }]
`

func TestTheDocumentedProfileLeavesGroupsToDefaultPreemption(t *testing.T) {
	metrics.Register()
	decoded, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(groupProfile), nil, &config.KubeSchedulerConfiguration{})
	if err != nil {
		t.Fatal(err)
	}
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	profile := decoded.(*config.KubeSchedulerConfiguration).Profiles[0]
	f, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()))
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, plugin := range f.PodGroupPostFilterPlugins() {
		names = append(names, plugin.Name())
	}
	if !slices.Equal(names, []string{"DynamicResources", "DefaultPreemption"}) {
		t.Errorf("got %v for pod groups", names)
	}
	for point, want := range map[string]bool{"PostFilter": false, "PreEnqueue": true} {
		set := map[string]config.PluginSet{"PostFilter": f.ListPlugins().PostFilter, "PreEnqueue": f.ListPlugins().PreEnqueue}[point]
		if got := slices.ContainsFunc(set.Enabled, func(p config.Plugin) bool { return p.Name == "DefaultPreemption" }); got != want {
			t.Errorf("DefaultPreemption at %s: %v, want %v", point, got, want)
		}
	}
}

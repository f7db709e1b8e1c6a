//go:build !kube136 && !kube135

package minor

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// The profile of docs/scheduler.md, with a stand-in for MakeWay. kube-scheduler puts at podGroupPostFilter what multiPoint
// enables, its own DynamicResources first.
const groupProfile = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        enabled: [{ name: MakeWay }, { name: DefaultPreemption }]
        disabled: [{ name: DefaultPreemption }]
      postFilter:
        enabled: [{ name: DynamicResources }, { name: MakeWay }, { name: DefaultPreemption }]
`

// standIn is a plugin of a name that makes room for pods and groups.
type standIn struct {
	GroupPlugin
	name string
}

func (s standIn) Name() string { return s.name }

func (standIn) PostFilter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return nil, nil
}

func TestTheDocumentedProfileAsksMakeWayForGroupsBeforeDefaultPreemption(t *testing.T) {
	metrics.Register()
	decoded, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(groupProfile), nil, &config.KubeSchedulerConfiguration{})
	if err != nil {
		t.Fatal(err)
	}
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	profile := decoded.(*config.KubeSchedulerConfiguration).Profiles[0]
	registry := plugins.NewInTreeRegistry()
	registry["MakeWay"] = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return standIn{name: "MakeWay"}, nil
	}
	f, err := frameworkruntime.NewFramework(ctx, registry, &profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewEmptySnapshot()))
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, plugin := range f.PodGroupPostFilterPlugins() {
		names = append(names, plugin.Name())
	}
	if want := []string{"DynamicResources", "MakeWay", "DefaultPreemption"}; !slices.Equal(names, want) {
		t.Errorf("got %v for pod groups, want %v", names, want)
	}
}

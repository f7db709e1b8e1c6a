package plugin

import (
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/wire"
)

func TestPlanRequestsCarryTheFiltersArguments(t *testing.T) {
	args, err := ask.ProfileArgsOf(&config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{
		SchedulerName: "default-scheduler",
		PluginConfig: []config.PluginConfig{
			{Name: "NodeResourcesFit", Args: &config.NodeResourcesFitArgs{IgnoredResources: []string{"example.com/gpu"}}},
			{Name: "ImageLocality", Args: &config.NodeAffinityArgs{}},
			{Name: Name, Args: argsOf(`{"natsURL": "nats://secret:4222"}`)},
		},
	}}}, Name)
	if err != nil {
		t.Fatal(err)
	}
	w, p, _ := simple(t, setup{}, nil)
	w.plugin.Profile = func() wire.Profile { return profileOf(w.framework, args) }

	w.cycle(p)

	asked := w.bus.requests[0].Profile.FilterArgs
	if len(asked) != 1 || !strings.Contains(string(asked["NodeResourcesFit"]), `"ignoredResources":["example.com/gpu"]`) {
		t.Errorf("filter arguments %s", asked)
	}
}

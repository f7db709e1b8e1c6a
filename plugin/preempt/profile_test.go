package preempt

import (
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

func TestPlanRequestsCarryTheFiltersArguments(t *testing.T) {
	err := RememberConfiguration(&config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{
		SchedulerName: "default-scheduler",
		PluginConfig: []config.PluginConfig{
			{Name: "NodeResourcesFit", Args: &config.NodeResourcesFitArgs{IgnoredResources: []string{"example.com/gpu"}}},
			{Name: "ImageLocality", Args: &config.NodeAffinityArgs{}},
			{Name: Name, Args: argsOf(`{"natsURL": "nats://secret:4222"}`)},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = RememberConfiguration(&config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{SchedulerName: "default-scheduler"}}})
	})
	w, p, _ := simple(t, setup{}, nil)

	w.cycle(p)

	args := w.bus.requests[0].Profile.FilterArgs
	if len(args) != 1 || !strings.Contains(string(args["NodeResourcesFit"]), `"ignoredResources":["example.com/gpu"]`) {
		t.Errorf("filter arguments %s", args)
	}
}

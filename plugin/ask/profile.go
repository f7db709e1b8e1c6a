package ask

import (
	"encoding/json"
	"fmt"
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// ProfileArgs are plugin arguments by profile and plugin, as JSON. A plugin's handle does not tell the arguments of other
// plugins, so that whoever builds the scheduler hands them to NewWith. Of a profile that is not in them the planner takes the
// defaults.
type ProfileArgs map[string]map[string]json.RawMessage

// ProfileArgsOf returns the arguments that a scheduler of this configuration builds its profiles with: those of the
// configuration, which is complete with its defaults, where extenders have no resource ignored. Where they do,
// kube-scheduler's NodeResourcesFit ignores the extenders' resources, in the place of its own (buildExtenders in
// pkg/scheduler/scheduler.go). The configuration is not changed.
// but: plugins whose arguments no planner reads.
func ProfileArgsOf(configuration *config.KubeSchedulerConfiguration, but ...string) (ProfileArgs, error) {
	ignored := ignoredByScheduler(configuration.Extenders)
	known := ProfileArgs{}
	for _, profile := range configuration.Profiles {
		args := map[string]json.RawMessage{}
		for _, plugin := range profile.PluginConfig {
			if slices.Contains(but, plugin.Name) || plugin.Args == nil {
				continue
			}
			raw, err := versioned(plugin, ignored)
			if err != nil {
				return nil, fmt.Errorf("arguments of plugin %s in profile %s: %w", plugin.Name, profile.SchedulerName, err)
			}
			args[plugin.Name] = raw
		}
		known[profile.SchedulerName] = args
	}
	return known, nil
}

// ignoredByScheduler are the resources of which extenders say so.
func ignoredByScheduler(extenders []config.Extender) (names []string) {
	for _, extender := range extenders {
		for _, resource := range extender.ManagedResources {
			if resource.IgnoredByScheduler {
				names = append(names, resource.Name)
			}
		}
	}
	return names
}

// versioned are a plugin's arguments as configuration files have them, where kube-scheduler knows their kind.
func versioned(plugin config.PluginConfig, ignored []string) (json.RawMessage, error) {
	object := plugin.Args
	if fit, ok := object.(*config.NodeResourcesFitArgs); ok && len(ignored) > 0 {
		fit = fit.DeepCopy()
		fit.IgnoredResources = ignored
		object = fit
	}
	if scheme.Scheme.Recognizes(config.SchemeGroupVersion.WithKind(plugin.Name + "Args")) {
		converted, err := scheme.Scheme.ConvertToVersion(object, configv1.SchemeGroupVersion)
		if err != nil {
			return nil, err
		}
		object = converted
	}
	return json.Marshal(object)
}

// ProfileOf names the filters of a profile, in the order in which they run, with their arguments where they are known.
func ProfileOf(filters framework.Framework, args ProfileArgs) wire.Profile {
	profile := wire.Profile{Name: filters.ProfileName()}
	known := args[profile.Name]
	for _, filter := range filters.ListPlugins().Filter.Enabled {
		profile.Filters = append(profile.Filters, filter.Name)
		if args, ok := known[filter.Name]; ok {
			if profile.FilterArgs == nil {
				profile.FilterArgs = map[string]json.RawMessage{}
			}
			profile.FilterArgs[filter.Name] = args
		}
	}
	return profile
}

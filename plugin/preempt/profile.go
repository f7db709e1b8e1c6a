package preempt

import (
	"encoding/json"
	"fmt"
	"sync"

	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"makeway.dev/makeway/plugin/wire"
)

// profileArgs are plugin arguments by profile and plugin, as JSON. A plugin's handle does not tell the
// arguments of other plugins, so the command hands the configuration over (see RememberConfiguration).
var profileArgs = struct {
	sync.RWMutex
	of map[string]map[string]json.RawMessage
}{of: map[string]map[string]json.RawMessage{}}

// RememberConfiguration lets plan requests carry the arguments of the profiles' filters. Without it the
// planner takes the defaults.
func RememberConfiguration(configuration *config.KubeSchedulerConfiguration) error {
	profileArgs.Lock()
	defer profileArgs.Unlock()
	for _, profile := range configuration.Profiles {
		args := map[string]json.RawMessage{}
		for _, plugin := range profile.PluginConfig {
			if plugin.Name == Name || plugin.Args == nil {
				continue
			}
			object := plugin.Args
			if scheme.Scheme.Recognizes(config.SchemeGroupVersion.WithKind(plugin.Name + "Args")) {
				versioned, err := scheme.Scheme.ConvertToVersion(plugin.Args, configv1.SchemeGroupVersion)
				if err != nil {
					return fmt.Errorf("arguments of plugin %s in profile %s: %w", plugin.Name, profile.SchedulerName, err)
				}
				object = versioned
			}
			raw, err := json.Marshal(object)
			if err != nil {
				return fmt.Errorf("arguments of plugin %s in profile %s: %w", plugin.Name, profile.SchedulerName, err)
			}
			args[plugin.Name] = raw
		}
		profileArgs.of[profile.SchedulerName] = args
	}
	return nil
}

// profile names the filters of this plugin's profile, in the order in which they run, with their
// arguments where they are known. The framework knows its filters only after every plugin is made.
func (pl *MakeWay) profile() wire.Profile {
	pl.profileOnce.Do(func() {
		pl.profileValue = wire.Profile{Name: pl.handle.ProfileName()}
		if lister, ok := pl.handle.(framework.Framework); ok {
			pl.profileValue = profileOf(lister)
		}
	})
	return pl.profileValue
}

// profileOf names the filters of a profile, in the order in which they run, with their arguments where they are known.
func profileOf(filters framework.Framework) wire.Profile {
	profile := wire.Profile{Name: filters.ProfileName()}
	profileArgs.RLock()
	defer profileArgs.RUnlock()
	known := profileArgs.of[profile.Name]
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

// hasFallback reports whether MakeWayFallback runs where this plugin's PostFilter has no answer. The framework knows its
// plugins only after every one is made.
func (pl *MakeWay) hasFallback() bool {
	pl.fallbackOnce.Do(func() {
		if lister, ok := pl.handle.(framework.Framework); ok {
			for _, plugin := range lister.ListPlugins().PostFilter.Enabled {
				pl.fallback = pl.fallback || plugin.Name == FallbackName
			}
		}
	})
	return pl.fallback
}

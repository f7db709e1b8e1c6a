package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	kubeschedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/minor"
	makeway "makeway.dev/makeway/plugin/plugin"
	makewayshadow "makeway.dev/makeway/plugin/shadow"
)

// newShadow makes the subcommand that schedules no pod and verifies plans for those who have no filters to ask.
func newShadow(plugins ...app.Option) *cobra.Command {
	opts := options.NewOptions()
	command := &cobra.Command{
		Use:   "shadow",
		Short: "Verify plans with the filters of this scheduler, and schedule nothing",
		Args:  cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return opts.ComponentGlobalsRegistry.Set()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			built, err := profileArgs(command)
			if err != nil {
				return err
			}
			return shadow(command.Context(), opts, built, plugins...)
		},
	}
	for _, set := range opts.Flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	command.Flags().SetNormalizeFunc(flag.WordSepNormalizeFunc)
	return command
}

// shadow is a scheduler as kube-scheduler's own command makes it, which is never told of a pod.
func shadow(ctx context.Context, opts *options.Options, built ask.ProfileArgs, plugins ...app.Option) error {
	completed, sched, err := app.Setup(ctx, opts, plugins...)
	if err != nil {
		return err
	}
	if completed.LeaderElection != nil {
		return fmt.Errorf("leaderElection.leaderElect: a shadow writes nothing, and each of its replicas answers: set it to false")
	}
	if len(sched.Profiles) != 1 {
		return fmt.Errorf("profiles: a shadow has one, not %d", len(sched.Profiles))
	}
	for _, extender := range completed.ComponentConfig.Extenders {
		return fmt.Errorf("extenders: a shadow asks none, and %s is configured", extender.URLPrefix)
	}
	minor.Idle(ctx, sched)
	for name, filters := range sched.Profiles {
		snapshot, ok := filters.SnapshotSharedLister().(*cache.Snapshot)
		if !ok {
			return fmt.Errorf("profile %s: its snapshot is a %T", name, filters.SnapshotSharedLister())
		}
		if err := preemptsNothing(filters.ListPlugins()); err != nil {
			return err
		}
		refresh := func() error { return sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot) }
		connect, subjects, err := makeway.Connection(arguments(&completed.ComponentConfig))
		if err != nil {
			return err
		}
		makewayshadow.New(ctx, connect, subjects, filters, built, refresh, sched.WaitForHandlersSync)
	}
	return app.Run(ctx, completed, sched)
}

// preemptsNothing refuses the plugin itself: it would hold pods and write orders.
func preemptsNothing(plugins *kubeschedulerconfig.Plugins) error {
	for _, plugin := range plugins.PostFilter.Enabled {
		if plugin.Name == makeway.Name {
			return fmt.Errorf("plugin %s: a shadow preempts nothing itself: enable it in no extension point; its pluginConfig is read", plugin.Name)
		}
	}
	return nil
}

// arguments are those of the plugin MakeWay in the first profile.
func arguments(configuration *kubeschedulerconfig.KubeSchedulerConfiguration) runtime.Object {
	for _, plugin := range configuration.Profiles[0].PluginConfig {
		if plugin.Name == makeway.Name {
			return plugin.Args
		}
	}
	return nil
}

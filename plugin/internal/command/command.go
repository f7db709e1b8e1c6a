// Package command makes the command line of a kube-scheduler that has makeway's plugins compiled in. All
// of kube-scheduler's own flags and configuration work as they do there.
package command

import (
	"github.com/spf13/cobra"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version's metric
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"makeway.dev/makeway/plugin/preempt"
)

// New makes the command, with MakeWay, MakeWayFallback, NominatedSort, and further plugins where they are given.
func New(further ...app.Option) *cobra.Command {
	ours := []app.Option{
		app.WithPlugin(preempt.Name, preempt.New),
		app.WithPlugin(preempt.FallbackName, preempt.NewFallback),
		app.WithPlugin(preempt.NominatedSortName, preempt.NewNominatedSort),
	}
	plugins := append(ours, further...)
	command := app.NewSchedulerCommand(plugins...)
	command.PreRunE = rememberConfiguration
	command.AddCommand(newShadow(plugins...))
	return command
}

// rememberConfiguration shows the plugin the arguments of the other plugins, which the scheduling
// framework does not. A configuration that cannot be read is the scheduler's to complain about.
func rememberConfiguration(command *cobra.Command, _ []string) error {
	path := command.Flag("config").Value.String()
	if path == "" {
		return nil
	}
	configuration, err := options.LoadConfigFromFile(klog.Background(), path)
	if err != nil {
		return nil
	}
	return preempt.RememberConfiguration(configuration)
}

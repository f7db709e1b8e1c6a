// Package command makes the command line of a kube-scheduler that has makeway's plugins compiled in. All
// of kube-scheduler's own flags and configuration work as they do there.
package command

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version's metric
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"

	"makeway.dev/makeway/plugin/ask"
	makeway "makeway.dev/makeway/plugin/plugin"
	"makeway.dev/makeway/plugin/queues"
)

// New makes the command, with MakeWay, MakeWayQueues, NominatedSort, and further plugins where they are given.
func New(further ...app.Option) *cobra.Command {
	var built ask.ProfileArgs // known once the flags are
	makeWay := func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return makeway.NewWith(ctx, object, handle, built)
	}
	ours := []app.Option{
		app.WithPlugin(makeway.Name, makeWay),
		app.WithPlugin(queues.Name, queues.New),
		app.WithPlugin(makeway.NominatedSortName, makeway.NewNominatedSort),
	}
	plugins := append(ours, further...)
	command := app.NewSchedulerCommand(plugins...)
	command.PreRunE = func(command *cobra.Command, _ []string) (err error) {
		built, err = profileArgs(command)
		return err
	}
	command.AddCommand(newShadow(plugins...))
	return command
}

// profileArgs are the arguments that a scheduler with the flags of a command builds its profiles with. No flag but the
// configuration file changes any. A file that cannot be read is the scheduler's to complain about.
func profileArgs(command *cobra.Command) (ask.ProfileArgs, error) {
	read := latest.Default
	if path := command.Flag("config").Value.String(); path != "" {
		read = func() (*config.KubeSchedulerConfiguration, error) {
			return options.LoadConfigFromFile(klog.Background(), path)
		}
	}
	configuration, err := read()
	if err != nil {
		return nil, nil
	}
	return ask.ProfileArgsOf(configuration, makeway.Name, queues.Name)
}

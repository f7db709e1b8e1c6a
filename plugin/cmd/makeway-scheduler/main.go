// Command makeway-scheduler is kube-scheduler with the plugin MakeWay compiled in. All of
// kube-scheduler's own flags and configuration work as they do there.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the version's metric
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"makeway.dev/makeway/plugin/bridge"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(bridge.Name, bridge.New))
	command.PreRunE = rememberConfiguration
	os.Exit(cli.Run(command))
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
	return bridge.RememberConfiguration(configuration)
}

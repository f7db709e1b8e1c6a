// Command makeway-scheduler is kube-scheduler with the plugin MakeWay compiled in. All of
// kube-scheduler's own flags and configuration work as they do there.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	// Registers --logging-format=json, as kube-scheduler does.
	_ "k8s.io/component-base/logs/json/register"

	"makeway.dev/makeway/plugin/command"
)

func main() {
	os.Exit(cli.Run(command.New()))
}

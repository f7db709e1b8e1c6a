// Command makeway-scheduler is kube-scheduler with the plugin MakeWay compiled in. All of
// kube-scheduler's own flags and configuration work as they do there.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"makeway.dev/makeway/plugin/command"
)

func main() {
	os.Exit(cli.Run(command.New()))
}

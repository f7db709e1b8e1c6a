// Command testscheduler is makeway-scheduler with four more plugins, for tests alone. They stand for
// plugins of third parties, of which neither the planner nor MakeWay knows anything. Each acts on pods
// that carry its annotation, and on no other.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"makeway.dev/makeway/plugin/command"
)

func main() {
	os.Exit(cli.Run(command.New(
		app.WithPlugin(aloofName, newAloof),
		app.WithPlugin(permitName, newPermit),
		app.WithPlugin(preBindName, newPreBind),
		app.WithPlugin(bindName, newBind),
	)))
}

// Command main is a kube-scheduler of one's own with MakeWay in it, beside a plugin of one's own: docs/scheduler.md.
package main

import (
	"context"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"makeway.dev/makeway/plugin/command"
)

// quiet keeps pods without a label off nodes that are labelled `example.com/quiet`.
type quiet struct{}

func (quiet) Name() string { return "Quiet" }

func (quiet) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	if node.Node().Labels["example.com/quiet"] == "true" && pod.Labels["example.com/quiet"] != "true" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the node is for quiet pods")
	}
	return nil
}

func newQuiet(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return quiet{}, nil }

func main() {
	os.Exit(cli.Run(command.New(app.WithPlugin("Quiet", newQuiet))))
}

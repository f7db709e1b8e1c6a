package plugin

import (
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// Connection is how the arguments of the plugin ask to connect to NATS, and the names of what is there: for a process that verifies plans
// and is no scheduler.
func Connection(object runtime.Object) (natsbus.Options, wire.Subjects, error) {
	args, err := decodeArgs(object)
	if err != nil {
		return natsbus.Options{}, wire.Subjects{}, err
	}
	return args.Options(""), args.Subjects(), nil
}

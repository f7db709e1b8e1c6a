package preempt

import (
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

// natsOptions are how the arguments ask to connect.
func (a *MakeWayArgs) natsOptions(identity string, failed func(kind string, err error)) natsbus.Options {
	return natsbus.Options{
		URL: a.NATSURL, Name: "makeway-scheduler " + identity,
		CredentialsFile: a.CredentialsFile, NkeySeedFile: a.NkeySeedFile, Username: a.Username, PasswordFile: a.PasswordFile, TLS: natsbus.TLSFiles(a.TLS),
		Failed: failed,
	}
}

// Connection is how the arguments of the plugin ask to connect to NATS, and the names of what is there: for a process that verifies plans
// and is no scheduler.
func Connection(object runtime.Object) (natsbus.Options, wire.Subjects, error) {
	args, err := decodeArgs(object)
	if err != nil {
		return natsbus.Options{}, wire.Subjects{}, err
	}
	return args.natsOptions("", nil), subjectsOf(args), nil
}

// subjectsOf are the names under the checked prefix of the arguments.
func subjectsOf(args *MakeWayArgs) wire.Subjects {
	subjects, err := wire.NewSubjects(args.SubjectPrefix)
	if err != nil {
		panic(err) // check has refused it
	}
	return subjects
}

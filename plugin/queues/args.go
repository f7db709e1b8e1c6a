package queues

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/wire"
)

// What becomes of pods while there are queues whose limits are not known.
const (
	whenUnknownHold = "hold"
	whenUnknownPass = "pass"
)

// MakeWayQueuesArgs are the arguments of the plugin MakeWayQueues in KubeSchedulerConfiguration. Profiles of one process may differ in
// mode; the rest they share.
type MakeWayQueuesArgs struct {
	metav1.TypeMeta   `json:",inline"`
	pluginargs.Shared `json:",inline"`

	// Mode is what the profile does at most: "enforce" holds pods; in "off" and "observe" they are counted alone. The policy may say
	// less. Default enforce.
	Mode string `json:"mode,omitempty"`

	// WhenUnknown is what becomes of pods while there are queues, as their ConfigMap shows, and no planner has told their
	// limits: "hold" binds none but exempt ones, "pass" binds all, so that queues may come above their max. Default hold.
	WhenUnknown string `json:"whenUnknown,omitempty"`

	// ExemptNamespaces is the list of namespaces whose pods are counted in their queues and never held by
	// them. It holds until a planner tells what the policy names (queues.exemptNamespaces). Pods of priority
	// 2000000000 and above, and of the namespace of queuesConfigMap, are exempt in any case. Default
	// [kube-system].
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty"`
}

// DefaultArgs are the arguments where nothing is given.
func DefaultArgs() MakeWayQueuesArgs {
	return MakeWayQueuesArgs{
		Shared: pluginargs.DefaultShared(), Mode: wire.ModeEnforce, WhenUnknown: whenUnknownHold, ExemptNamespaces: []string{metav1.NamespaceSystem},
	}
}

func decodeArgs(object runtime.Object) (*MakeWayQueuesArgs, error) {
	args := DefaultArgs()
	if err := pluginargs.Decode("MakeWayQueuesArgs", object, &args, args.check); err != nil {
		return nil, err
	}
	return &args, nil
}

// check says everything that is wrong with the arguments.
func (a *MakeWayQueuesArgs) check(say pluginargs.Say) {
	a.Shared.Check(say)
	say.OneOf("mode", a.Mode, wire.ModeOff, wire.ModeObserve, wire.ModeEnforce)
	say.OneOf("whenUnknown", a.WhenUnknown, whenUnknownHold, whenUnknownPass)
	pluginargs.CheckNamespaces("exemptNamespaces", a.ExemptNamespaces, say)
}

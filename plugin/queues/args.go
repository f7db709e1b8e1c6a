package queues

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/streams"
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
	metav1.TypeMeta `json:",inline"`
	pluginargs.NATS `json:",inline"`

	// Mode is what the profile does at most: "enforce" holds pods; in "off" and "observe" they are counted alone. The policy may say
	// less. Default enforce.
	Mode string `json:"mode,omitempty"`

	// WhenUnknown is what becomes of pods while there are queues, as their ConfigMap shows, and no planner has told their
	// limits: "hold" binds none but exempt ones, "pass" binds all, so that queues may come above their max. Default hold.
	WhenUnknown string `json:"whenUnknown,omitempty"`

	// Lease is the Lease of the scheduler's leader election: a standby writes no conditions. An empty name says that there is no
	// election. Default kube-system/makeway-scheduler.
	Lease pluginargs.LeaseReference `json:"lease,omitempty"`

	// QueuesConfigMap is where the queues are configured. A scheduler that starts and cannot learn the limits of queues from
	// NATS goes by whenUnknown while this ConfigMap exists, and schedules without queues where it does not; its content is
	// never read. An empty name says that there is none. Default makeway-system/makeway-queues.
	QueuesConfigMap pluginargs.ConfigMapReference `json:"queuesConfigMap,omitempty"`

	// ExemptNamespaces is the list of namespaces whose pods are counted in their queues and never held by
	// them. It holds until a planner tells what the policy names (queues.exemptNamespaces). Pods of priority
	// 2000000000 and above, and of the namespace of queuesConfigMap, are exempt in any case. Default
	// [kube-system].
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty"`

	// BrakeConfigMap is the brake: queues hold no pods of the namespaces that it stops. An empty name follows none. Default
	// makeway-system/makeway-brake.
	BrakeConfigMap pluginargs.ConfigMapReference `json:"brakeConfigMap,omitempty"`

	// Signatures is what becomes of control states whose signature does not hold: "require" ignores them, "log" takes and
	// counts them, "off" does not look. Default off.
	Signatures string `json:"signatures,omitempty"`

	// KeysConfigMap holds the public keys, which are not read where signatures is off. Default makeway-system/makeway-keys.
	KeysConfigMap pluginargs.ConfigMapReference `json:"keysConfigMap,omitempty"`
}

// DefaultArgs are the arguments where nothing is given.
func DefaultArgs() MakeWayQueuesArgs {
	return MakeWayQueuesArgs{
		NATS: pluginargs.DefaultNATS(), Mode: wire.ModeEnforce, WhenUnknown: whenUnknownHold,
		Lease:            pluginargs.LeaseReference{Namespace: metav1.NamespaceSystem, Name: "makeway-scheduler"},
		QueuesConfigMap:  pluginargs.ConfigMapReference{Namespace: "makeway-system", Name: "makeway-queues"},
		ExemptNamespaces: []string{metav1.NamespaceSystem},
		BrakeConfigMap:   pluginargs.ConfigMapReference{Namespace: "makeway-system", Name: control.BrakeName},
		Signatures:       streams.SignaturesOff,
		KeysConfigMap:    pluginargs.ConfigMapReference{Namespace: "makeway-system", Name: "makeway-keys"},
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
	if a.Kind != "" && a.Kind != "MakeWayQueuesArgs" {
		say("kind", a.Kind, "MakeWayQueuesArgs, or left out")
	}
	a.NATS.Check(say)
	if !slices.Contains([]string{wire.ModeOff, wire.ModeObserve, wire.ModeEnforce}, a.Mode) {
		say("mode", a.Mode, "off, observe or enforce")
	}
	if !slices.Contains([]string{whenUnknownHold, whenUnknownPass}, a.WhenUnknown) {
		say("whenUnknown", a.WhenUnknown, "hold or pass")
	}
	a.Lease.Check(say)
	a.QueuesConfigMap.Check("queuesConfigMap", say)
	pluginargs.CheckNamespaces("exemptNamespaces", a.ExemptNamespaces, say)
	a.BrakeConfigMap.Check("brakeConfigMap", say)
	if !slices.Contains([]string{streams.SignaturesOff, streams.SignaturesLog, streams.SignaturesRequire}, a.Signatures) {
		say("signatures", a.Signatures, "off, log or require")
	}
	if a.Signatures != streams.SignaturesOff && (a.KeysConfigMap.Name == "" || a.KeysConfigMap.Namespace == "") {
		say("keysConfigMap", a.KeysConfigMap, "namespace and name of the public keys, unless signatures is off")
	}
}

// differs names the first argument in which two profiles of one process may not differ; empty where there is none.
func (a *MakeWayQueuesArgs) differs(other *MakeWayQueuesArgs) string {
	if field := a.NATS.Differs(&other.NATS); field != "" {
		return field
	}
	switch {
	case a.WhenUnknown != other.WhenUnknown:
		return "whenUnknown"
	case a.Lease != other.Lease:
		return "lease"
	case a.QueuesConfigMap != other.QueuesConfigMap:
		return "queuesConfigMap"
	case !slices.Equal(a.ExemptNamespaces, other.ExemptNamespaces):
		return "exemptNamespaces"
	case a.BrakeConfigMap != other.BrakeConfigMap:
		return "brakeConfigMap"
	case a.Signatures != other.Signatures:
		return "signatures"
	case a.KeysConfigMap != other.KeysConfigMap:
		return "keysConfigMap"
	}
	return ""
}

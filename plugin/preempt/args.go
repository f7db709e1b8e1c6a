package preempt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/control"
	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/tracing"
	"makeway.dev/makeway/plugin/wire"
)

// Bounds of the arguments. They keep a scheduling cycle short and an order's life sensible.
const (
	minPlanTimeout   = 5 * time.Millisecond
	minNotAfter      = 5 * time.Second
	maxNotAfter      = 10 * time.Minute
	maxMaxCandidates = 100
)

// MakeWayArgs are the plugin's arguments, given under pluginConfig in a scheduler's configuration.
// A field that is left out has the default named here. Profiles of one process may differ in mode,
// planTimeout and maxCandidates; the rest they share.
type MakeWayArgs struct {
	metav1.TypeMeta `json:",inline"`

	pluginargs.NATS `json:",inline"`

	// PlanTimeout bounds how long a scheduling cycle waits for plans: as long as its filters took, 10ms at least, and no
	// longer than this. A plan that comes later is used in the pod's next cycle. From 5ms to 5s. Default 100ms.
	PlanTimeout metav1.Duration `json:"planTimeout,omitempty"`

	// GroupPlanTimeout is how long one plan request about a pod group may take, which grows with its members
	// and the nodes, one second at least. A scheduling cycle of a group waits as long as its filters took, one second at
	// most. From 5ms to 5s. Default 2s.
	GroupPlanTimeout metav1.Duration `json:"groupPlanTimeout,omitempty"`

	// MaxCandidates is how many candidate nodes a planner may answer with. From 1 to 100. Default 16.
	MaxCandidates int `json:"maxCandidates,omitempty"`

	// Mode is what the plugin does for a pod that does not fit: "off" nothing; "observe" asks for a
	// plan, so that it is recorded, and evicts nothing; "enforce" carries the plan out. Default enforce.
	Mode string `json:"mode,omitempty"`

	// NotAfter is how long after its creation an order may still begin to have effects. The pod waits
	// for it at most two seconds longer. From 5s to 10m. Default 60s.
	NotAfter metav1.Duration `json:"notAfter,omitempty"`

	// Lease is the Lease of the scheduler's leader election, whose leaseTransitions fence its orders.
	// An empty name says that there is no election: a counter in a NATS key-value bucket takes its
	// place. Default kube-system/makeway-scheduler.
	Lease LeaseReference `json:"lease,omitempty"`

	// QueuesConfigMap is where the queues are configured, which restrict preemption. An empty name says that there is none.
	// Default makeway-system/makeway-queues.
	QueuesConfigMap ConfigMapReference `json:"queuesConfigMap,omitempty"`

	// BrakeConfigMap is the brake: while this ConfigMap exists, mode off holds, or holds for the namespaces
	// that it names. It is followed by a watch, and without NATS. An empty name follows none; the evictors
	// read theirs all the same. Default makeway-system/makeway-brake.
	BrakeConfigMap ConfigMapReference `json:"brakeConfigMap,omitempty"`

	// PolicyConfigMap is where the policy is configured. It is followed by a watch, as QueuesConfigMap is: where
	// either cannot be read, or has changed and no planner has reported what it says, nothing is evicted without a
	// plan. An empty name says that there is none. Default makeway-system/makeway-policy.
	PolicyConfigMap ConfigMapReference `json:"policyConfigMap,omitempty"`

	// Signatures is what becomes of outcomes, control states and orders whose signature does not hold: "require"
	// ignores them, "log" takes and counts them, "off" does not look. Default off.
	Signatures string `json:"signatures,omitempty"`

	// KeysConfigMap holds the public keys; see makeway keys. It is read every five seconds, by name, and not
	// at all where signatures is off. Default makeway-system/makeway-keys.
	KeysConfigMap ConfigMapReference `json:"keysConfigMap,omitempty"`

	// Tracing says where traces of preemptions are sent: its field endpoint is a URL such as http://collector:4318,
	// which takes OTLP over HTTP. Default: nowhere.
	Tracing Tracing `json:"tracing,omitempty"`
}

// Tracing says where traces are sent. OpenTelemetry's environment variables say the rest, such as OTEL_TRACES_SAMPLER.
type Tracing struct {
	// Endpoint is the URL of what takes traces by OTLP over HTTP. Empty: there are none.
	Endpoint string `json:"endpoint,omitempty"`
}

// References of arguments.
type (
	ConfigMapReference = pluginargs.ConfigMapReference
	LeaseReference     = pluginargs.LeaseReference
)

// defaultArgs are the arguments where nothing is given.
func defaultArgs() MakeWayArgs {
	return MakeWayArgs{
		NATS:        pluginargs.DefaultNATS(),
		PlanTimeout: metav1.Duration{Duration: 100 * time.Millisecond},

		GroupPlanTimeout: metav1.Duration{Duration: 2 * time.Second},

		MaxCandidates: 16,
		Mode:          wire.ModeEnforce,
		NotAfter:      metav1.Duration{Duration: time.Minute},
		Lease:         LeaseReference{Namespace: metav1.NamespaceSystem, Name: "makeway-scheduler"},

		QueuesConfigMap: ConfigMapReference{Namespace: "makeway-system", Name: "makeway-queues"},
		BrakeConfigMap:  ConfigMapReference{Namespace: "makeway-system", Name: control.BrakeName},
		PolicyConfigMap: ConfigMapReference{Namespace: "makeway-system", Name: "makeway-policy"},
		Signatures:      streams.SignaturesOff,
		KeysConfigMap:   ConfigMapReference{Namespace: "makeway-system", Name: "makeway-keys"},
	}
}

// decodeArgs reads, defaults and checks the arguments.
func decodeArgs(object runtime.Object) (*MakeWayArgs, error) {
	args := defaultArgs()
	if err := pluginargs.Decode("MakeWayArgs", object, &args, args.check); err != nil {
		return nil, err
	}
	return &args, nil
}

// check says everything that is wrong with the arguments.
func (a *MakeWayArgs) check(say pluginargs.Say) {
	if a.Kind != "" && a.Kind != "MakeWayArgs" {
		say("kind", a.Kind, "MakeWayArgs, or left out")
	}
	a.NATS.Check(say)
	planTimeout := func(field string, t time.Duration) {
		if t < minPlanTimeout || t > ask.MaxPlanTimeout {
			say(field, t, fmt.Sprintf("from %s to %s", minPlanTimeout, ask.MaxPlanTimeout))
		}
	}
	planTimeout("planTimeout", a.PlanTimeout.Duration)
	planTimeout("groupPlanTimeout", a.GroupPlanTimeout.Duration)
	if n := a.MaxCandidates; n < 1 || n > maxMaxCandidates {
		say("maxCandidates", n, fmt.Sprintf("from 1 to %d", maxMaxCandidates))
	}
	if !slices.Contains([]string{wire.ModeOff, wire.ModeObserve, wire.ModeEnforce}, a.Mode) {
		say("mode", a.Mode, "off, observe or enforce")
	}
	if t := a.NotAfter.Duration; t < minNotAfter || t > maxNotAfter {
		say("notAfter", t, fmt.Sprintf("from %s to %s", minNotAfter, maxNotAfter))
	}
	a.Lease.Check(say)
	a.QueuesConfigMap.Check("queuesConfigMap", say)
	a.BrakeConfigMap.Check("brakeConfigMap", say)
	a.PolicyConfigMap.Check("policyConfigMap", say)
	if !slices.Contains([]string{streams.SignaturesOff, streams.SignaturesLog, streams.SignaturesRequire}, a.Signatures) {
		say("signatures", a.Signatures, "off, log or require")
	}
	if a.Signatures != streams.SignaturesOff && (a.KeysConfigMap.Name == "" || a.KeysConfigMap.Namespace == "") {
		say("keysConfigMap", a.KeysConfigMap.Namespace+"/"+a.KeysConfigMap.Name, "namespace and name of the public keys, unless signatures is off")
	}
	if a.Tracing.Endpoint != "" {
		if err := tracing.Check(a.Tracing.Endpoint); err != nil {
			endpoint := a.Tracing.Endpoint
			if strings.Contains(endpoint, "@") {
				endpoint = "...@..." // there may be a password before it
			}
			say("tracing.endpoint", endpoint, err.Error())
		}
	}
}

// sharedDiffers names the first argument in which two profiles of one process may not differ.
func (a *MakeWayArgs) sharedDiffers(other *MakeWayArgs) string {
	if field := a.NATS.Differs(&other.NATS); field != "" {
		return field
	}
	switch {
	case a.NotAfter != other.NotAfter:
		return "notAfter"
	case a.Lease != other.Lease:
		return "lease"
	case a.QueuesConfigMap != other.QueuesConfigMap:
		return "queuesConfigMap"
	case a.BrakeConfigMap != other.BrakeConfigMap:
		return "brakeConfigMap"
	case a.PolicyConfigMap != other.PolicyConfigMap:
		return "policyConfigMap"
	case a.Signatures != other.Signatures:
		return "signatures"
	case a.KeysConfigMap != other.KeysConfigMap:
		return "keysConfigMap"
	case a.Tracing != other.Tracing:
		return "tracing"
	}
	return ""
}

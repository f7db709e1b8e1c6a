package plugin

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/natsbus"
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

	pluginargs.Shared `json:",inline"`

	// PlanTimeout bounds how long a scheduling cycle waits for plans: as long as its filters took and 10ms more, and no
	// longer than this. A plan that comes later is used in the pod's next cycle. From 5ms to 5s. Default 100ms.
	PlanTimeout metav1.Duration `json:"planTimeout,omitempty"`

	// GroupPlanTimeout is how long one plan request about a pod group may take, which grows with its members
	// and the nodes, one second at least. A scheduling cycle of a group waits as long as its filters took and 10ms more, one
	// second at most. From 5ms to 5s. Default 2s.
	GroupPlanTimeout metav1.Duration `json:"groupPlanTimeout,omitempty"`

	// MaxCandidates is how many candidate nodes a planner may answer with. From 1 to 100. Default 16.
	MaxCandidates int `json:"maxCandidates,omitempty"`

	// Mode is what the plugin does for a pod that does not fit: "off" nothing; "observe" asks for a
	// plan, so that it is recorded, and evicts nothing; "enforce" carries the plan out. Default enforce.
	Mode string `json:"mode,omitempty"`

	// NotAfter is how long after its creation an order may still begin to have effects. The pod waits
	// for it at most two seconds longer. From 5s to 10m. Default 60s.
	NotAfter metav1.Duration `json:"notAfter,omitempty"`

	// PolicyConfigMap is where the policy is configured. It is followed by a watch, as QueuesConfigMap is: where
	// either cannot be read, or has changed and no planner has reported what it says, nothing is evicted without a
	// plan. An empty name says that there is none. Default makeway-system/makeway-policy.
	PolicyConfigMap pluginargs.ConfigMapReference `json:"policyConfigMap,omitempty"`

	// Tracing says where traces of preemptions are sent: its field endpoint is a URL such as http://collector:4318,
	// which takes OTLP over HTTP. Default: nowhere.
	Tracing Tracing `json:"tracing,omitempty"`
}

// Tracing says where traces are sent. OpenTelemetry's environment variables say the rest, such as OTEL_TRACES_SAMPLER.
type Tracing struct {
	// Endpoint is the URL of what takes traces by OTLP over HTTP. Empty: there are none.
	Endpoint string `json:"endpoint,omitempty"`
}

// defaultArgs are the arguments where nothing is given.
func defaultArgs() MakeWayArgs {
	return MakeWayArgs{
		Shared:           pluginargs.DefaultShared(),
		PlanTimeout:      metav1.Duration{Duration: 100 * time.Millisecond},
		GroupPlanTimeout: metav1.Duration{Duration: 2 * time.Second},
		MaxCandidates:    16,
		Mode:             wire.ModeEnforce,
		NotAfter:         metav1.Duration{Duration: time.Minute},
		PolicyConfigMap:  pluginargs.System("makeway-policy"),
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
	a.Shared.Check(say)
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
	say.OneOf("mode", a.Mode, wire.ModeOff, wire.ModeObserve, wire.ModeEnforce)
	if t := a.NotAfter.Duration; t < minNotAfter || t > maxNotAfter {
		say("notAfter", t, fmt.Sprintf("from %s to %s", minNotAfter, maxNotAfter))
	}
	a.PolicyConfigMap.Check("policyConfigMap", say)
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

// ofProfile are the arguments in which two profiles of one process may differ.
var ofProfile = []string{"planTimeout", "groupPlanTimeout", "maxCandidates", "mode"}

// Connection is how the arguments of the plugin ask to connect to NATS, and the names of what is there: for a process that verifies plans
// and is no scheduler.
func Connection(object runtime.Object) (natsbus.Options, wire.Subjects, error) {
	args, err := decodeArgs(object)
	if err != nil {
		return natsbus.Options{}, wire.Subjects{}, err
	}
	return args.Options(""), args.Subjects(), nil
}

package preempt

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/control"
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

	// NATSURL is where NATS listens; several servers are separated by commas. Schemes: nats, tls,
	// ws, wss. Default: what the environment variable MAKEWAY_NATS_URL says, which may come from a Secret,
	// else nats://127.0.0.1:4222.
	NATSURL string `json:"natsURL,omitempty"`

	// CredentialsFile is a NATS credentials file (a JWT and its seed). Default: none, no login.
	CredentialsFile string `json:"credentialsFile,omitempty"`

	// NkeySeedFile is the seed of an nkey, SU…, which logs in to NATS in place of credentials. The file is read
	// again at each connection. Default: none.
	NkeySeedFile string `json:"nkeySeedFile,omitempty"`

	// Username and PasswordFile log in to NATS with the password that the file holds, so that none stands in a
	// configuration or in a pod's environment. The file is read again at each connection. Default: as natsURL
	// says.
	Username     string `json:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`

	// TLS is what NATS's certificate is verified with, and what the scheduler shows of itself. Given, no
	// connection is made in clear. The files are read again at each connection. Default: the system's
	// authorities where the server asks for TLS, and no client certificate.
	TLS TLSFiles `json:"tls,omitempty"`

	// SubjectPrefix begins every subject and, in upper case, every stream name. Two clusters on one
	// NATS use two prefixes. Default makeway.
	SubjectPrefix string `json:"subjectPrefix,omitempty"`

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

	// QueuesConfigMap is where the queues are configured. A scheduler that starts and cannot learn the
	// limits of queues from NATS binds nothing while this ConfigMap exists, and schedules without a
	// queue gate where it does not; its content is never read. An empty name says that there is none.
	// Default makeway-system/makeway-queues.
	QueuesConfigMap ConfigMapReference `json:"queuesConfigMap,omitempty"`

	// ExemptNamespaces is the list of namespaces whose pods are counted in their queues and never held by
	// them. It holds until a planner tells what the policy names (queues.exemptNamespaces). Pods of priority
	// 2000000000 and above, and of the namespace of queuesConfigMap, are exempt in any case. Default
	// [kube-system].
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty"`

	// BrakeConfigMap is the brake: while this ConfigMap exists, mode off holds, or holds for the namespaces
	// that it names. It is followed by a watch, and without NATS. An empty name follows none; the evictors
	// read theirs all the same. Default makeway-system/makeway-brake.
	BrakeConfigMap ConfigMapReference `json:"brakeConfigMap,omitempty"`

	// PolicyConfigMap is where the policy is configured. It is followed by a watch, as QueuesConfigMap is: where
	// either cannot be read, or has changed and no planner has reported what it says, nothing is evicted without a
	// plan. An empty name says that there is none. Default makeway-system/makeway-policy.
	PolicyConfigMap ConfigMapReference `json:"policyConfigMap,omitempty"`

	// Signatures is what becomes of outcomes, control states and orders whose signature does not hold: "require"
	// ignores them, "log" takes and counts them, "off" does not look. With require, no orders for pod groups are
	// written without a key to sign them with. Default off.
	Signatures string `json:"signatures,omitempty"`

	// SigningKeysDirectory holds order.pem, the private key that orders for pod groups are signed with, in PEM (PKCS #8,
	// Ed25519). It is read again every five seconds. Empty: they are not signed. Default empty.
	SigningKeysDirectory string `json:"signingKeysDirectory,omitempty"`

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

// TLSFiles names files in PEM.
type TLSFiles struct {
	// CAFile holds the authorities of the servers' certificates. Empty: the system's.
	CAFile string `json:"caFile,omitempty"`
	// CertFile holds a client certificate. It goes with keyFile. Empty: none.
	CertFile string `json:"certFile,omitempty"`
	// KeyFile holds the key of that certificate.
	KeyFile string `json:"keyFile,omitempty"`
}

// ConfigMapReference names a ConfigMap.
type ConfigMapReference struct {
	// Namespace of the ConfigMap. Default makeway-system.
	Namespace string `json:"namespace,omitempty"`
	// Name of the ConfigMap. Empty: there is none. Default as said where it is referred to.
	Name string `json:"name"`
}

// String is namespace/name.
func (r ConfigMapReference) String() string { return r.Namespace + "/" + r.Name }

// LeaseReference names a Lease.
type LeaseReference struct {
	// Namespace of the Lease. Default kube-system.
	Namespace string `json:"namespace,omitempty"`
	// Name of the Lease. Empty: no leader election. Default makeway-scheduler.
	Name string `json:"name"`
}

// defaultArgs are the arguments where nothing is given.
func defaultArgs() MakeWayArgs {
	return MakeWayArgs{
		NATSURL:       cmp.Or(os.Getenv("MAKEWAY_NATS_URL"), "nats://127.0.0.1:4222"),
		SubjectPrefix: wire.DefaultPrefix,
		PlanTimeout:   metav1.Duration{Duration: 100 * time.Millisecond},

		GroupPlanTimeout: metav1.Duration{Duration: 2 * time.Second},

		MaxCandidates: 16,
		Mode:          wire.ModeEnforce,
		NotAfter:      metav1.Duration{Duration: time.Minute},
		Lease:         LeaseReference{Namespace: metav1.NamespaceSystem, Name: "makeway-scheduler"},

		QueuesConfigMap:  ConfigMapReference{Namespace: "makeway-system", Name: "makeway-queues"},
		ExemptNamespaces: []string{metav1.NamespaceSystem},
		BrakeConfigMap:   ConfigMapReference{Namespace: "makeway-system", Name: control.BrakeName},
		PolicyConfigMap:  ConfigMapReference{Namespace: "makeway-system", Name: "makeway-policy"},
		Signatures:       streams.SignaturesOff,
		KeysConfigMap:    ConfigMapReference{Namespace: "makeway-system", Name: "makeway-keys"},
	}
}

// decodeArgs reads, defaults and checks the arguments. Its errors name the field, the value and what
// is allowed; all that is wrong is said at once.
func decodeArgs(object runtime.Object) (*MakeWayArgs, error) {
	args := defaultArgs()
	raw, err := rawArgs(object)
	if err != nil {
		return nil, fmt.Errorf("MakeWayArgs: %w", err)
	}
	if len(raw) > 0 {
		unknown, err := kjson.UnmarshalStrict(raw, &args)
		if err = errors.Join(append(unknown, err)...); err != nil {
			return nil, fmt.Errorf("MakeWayArgs: %w", err)
		}
	}
	if err := args.check(); err != nil {
		return nil, fmt.Errorf("MakeWayArgs: %w", err)
	}
	return &args, nil
}

// rawArgs are the arguments as JSON, empty where there are none. The scheduler hands the arguments of
// a plugin that is not its own over undecoded.
func rawArgs(object runtime.Object) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	unknown, ok := object.(*runtime.Unknown)
	if !ok {
		return nil, fmt.Errorf("want arguments of type runtime.Unknown, got %T", object)
	}
	if unknown.ContentType != runtime.ContentTypeYAML {
		return unknown.Raw, nil
	}
	raw, err := yaml.YAMLToJSONStrict(unknown.Raw)
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// check says everything that is wrong with the arguments.
func (a *MakeWayArgs) check() error {
	var wrong []error
	say := func(field string, value any, allowed string) {
		wrong = append(wrong, fmt.Errorf("%s: %q: %s", field, fmt.Sprint(value), allowed))
	}

	if a.Kind != "" && a.Kind != "MakeWayArgs" {
		say("kind", a.Kind, "MakeWayArgs, or left out")
	}
	for server := range strings.SplitSeq(a.NATSURL, ",") {
		parsed, err := url.Parse(strings.TrimSpace(server))
		if err != nil || parsed.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, parsed.Scheme) {
			say("natsURL", a.NATSURL, "URLs such as nats://host:4222, separated by commas; schemes nats, tls, ws, wss")
			break
		}
	}
	if (a.Username == "") != (a.PasswordFile == "") {
		say("username", a.Username+a.PasswordFile, "username and passwordFile together")
	}
	if logins := slices.DeleteFunc([]string{a.Username, a.CredentialsFile, a.NkeySeedFile}, func(one string) bool { return one == "" }); len(logins) > 1 {
		say("credentialsFile", strings.Join(logins, ", "), "one login: credentialsFile, nkeySeedFile, or username and passwordFile")
	}
	for field, name := range map[string]string{"credentialsFile": a.CredentialsFile, "nkeySeedFile": a.NkeySeedFile, "passwordFile": a.PasswordFile, "tls.caFile": a.TLS.CAFile, "tls.certFile": a.TLS.CertFile, "tls.keyFile": a.TLS.KeyFile} {
		if name == "" {
			continue
		}
		if file, err := os.Open(name); err != nil {
			say(field, name, "a file that can be read ("+err.Error()+")")
		} else {
			_ = file.Close() // nothing was written
		}
	}
	if (a.TLS.CertFile == "") != (a.TLS.KeyFile == "") {
		say("tls", a.TLS.CertFile+a.TLS.KeyFile, "certFile and keyFile together")
	}
	if _, err := wire.NewSubjects(a.SubjectPrefix); err != nil {
		say("subjectPrefix", a.SubjectPrefix, "letters, digits, '-', '_' and inner '.', such as makeway")
	}
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
	if a.Lease.Name != "" && a.Lease.Namespace == "" {
		say("lease.namespace", a.Lease.Namespace, "the namespace of lease "+a.Lease.Name)
	}
	if a.QueuesConfigMap.Name != "" && a.QueuesConfigMap.Namespace == "" {
		say("queuesConfigMap.namespace", a.QueuesConfigMap.Namespace, "the namespace of ConfigMap "+a.QueuesConfigMap.Name)
	}
	for _, namespace := range a.ExemptNamespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			say("exemptNamespaces", namespace, "names of namespaces, such as kube-system")
		}
	}
	if a.BrakeConfigMap.Name != "" && a.BrakeConfigMap.Namespace == "" {
		say("brakeConfigMap.namespace", a.BrakeConfigMap.Namespace, "the namespace of ConfigMap "+a.BrakeConfigMap.Name)
	}
	if a.PolicyConfigMap.Name != "" && a.PolicyConfigMap.Namespace == "" {
		say("policyConfigMap.namespace", a.PolicyConfigMap.Namespace, "the namespace of ConfigMap "+a.PolicyConfigMap.Name)
	}
	if !slices.Contains([]string{streams.SignaturesOff, streams.SignaturesLog, streams.SignaturesRequire}, a.Signatures) {
		say("signatures", a.Signatures, "off, log or require")
	}
	if a.Signatures == streams.SignaturesRequire && a.SigningKeysDirectory == "" {
		say("signingKeysDirectory", a.SigningKeysDirectory, "a directory with order.pem, where signatures is require")
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
	return errors.Join(wrong...)
}

// sharedDiffers names the first argument in which two profiles of one process may not differ.
func (a *MakeWayArgs) sharedDiffers(other *MakeWayArgs) string {
	switch {
	case a.NATSURL != other.NATSURL:
		return "natsURL"
	case a.CredentialsFile != other.CredentialsFile:
		return "credentialsFile"
	case a.NkeySeedFile != other.NkeySeedFile:
		return "nkeySeedFile"
	case a.Username != other.Username:
		return "username"
	case a.PasswordFile != other.PasswordFile:
		return "passwordFile"
	case a.TLS != other.TLS:
		return "tls"
	case a.SubjectPrefix != other.SubjectPrefix:
		return "subjectPrefix"
	case a.NotAfter != other.NotAfter:
		return "notAfter"
	case a.Lease != other.Lease:
		return "lease"
	case a.QueuesConfigMap != other.QueuesConfigMap:
		return "queuesConfigMap"
	case !slices.Equal(a.ExemptNamespaces, other.ExemptNamespaces):
		return "exemptNamespaces"
	case a.BrakeConfigMap != other.BrakeConfigMap:
		return "brakeConfigMap"
	case a.PolicyConfigMap != other.PolicyConfigMap:
		return "policyConfigMap"
	case a.Signatures != other.Signatures:
		return "signatures"
	case a.SigningKeysDirectory != other.SigningKeysDirectory:
		return "signingKeysDirectory"
	case a.KeysConfigMap != other.KeysConfigMap:
		return "keysConfigMap"
	case a.Tracing != other.Tracing:
		return "tracing"
	}
	return ""
}

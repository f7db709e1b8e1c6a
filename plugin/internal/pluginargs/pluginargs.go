// Package pluginargs are the arguments that makeway's scheduler plugins have in common, and how arguments are read.
package pluginargs

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/streams"
	"makeway.dev/makeway/plugin/wire"
)

// Shared are the arguments that both plugins have.
type Shared struct {
	NATS `json:",inline"`

	// Lease is the Lease of the scheduler's leader election, whose leaseTransitions fence what MakeWay commits; a standby
	// of MakeWayQueues writes no conditions. An empty name says that there is no election: a counter in a NATS key-value
	// bucket takes its place. Default kube-system/makeway-scheduler.
	Lease LeaseReference `json:"lease,omitempty"`

	// QueuesConfigMap is where the queues are configured, which restrict preemption. A MakeWayQueues that starts and
	// cannot learn the limits of queues from NATS goes by whenUnknown while this ConfigMap exists, and schedules without
	// queues where it does not; its content is never read. An empty name says that there is none. Default
	// makeway-system/makeway-queues.
	QueuesConfigMap ConfigMapReference `json:"queuesConfigMap,omitempty"`

	// BrakeConfigMap is the brake: while this ConfigMap exists, mode off holds, or holds for the namespaces that it names,
	// and queues hold no pods there. It is followed by a watch, and without NATS. An empty name follows none; the evictors
	// read theirs all the same. Default makeway-system/makeway-brake.
	BrakeConfigMap ConfigMapReference `json:"brakeConfigMap,omitempty"`

	// Signatures is what becomes of outcomes, control states and orders whose signature does not hold: "require"
	// ignores them, "log" takes and counts them, "off" does not look. Default off.
	Signatures string `json:"signatures,omitempty"`

	// KeysConfigMap holds the public keys; see makeway keys. It is read every five seconds, by name, and not
	// at all where signatures is off. Default makeway-system/makeway-keys.
	KeysConfigMap ConfigMapReference `json:"keysConfigMap,omitempty"`
}

// System is a ConfigMap of a name in makeway's own namespace.
func System(name string) ConfigMapReference {
	return ConfigMapReference{Namespace: "makeway-system", Name: name}
}

// DefaultShared are they where nothing is given.
func DefaultShared() Shared {
	return Shared{
		NATS:            NATS{NATSURL: cmp.Or(os.Getenv("MAKEWAY_NATS_URL"), "nats://127.0.0.1:4222"), SubjectPrefix: wire.DefaultPrefix},
		Lease:           LeaseReference{Namespace: metav1.NamespaceSystem, Name: "makeway-scheduler"},
		QueuesConfigMap: System("makeway-queues"), BrakeConfigMap: System("makeway-brake"), KeysConfigMap: System("makeway-keys"),
		Signatures: streams.SignaturesOff,
	}
}

// NATS is how a plugin connects to NATS, and the names of what is there.
type NATS struct {
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
	TLS natsbus.TLSFiles `json:"tls,omitempty"`

	// SubjectPrefix begins every subject and, in upper case, every stream name. Two clusters on one
	// NATS use two prefixes. Default makeway.
	SubjectPrefix string `json:"subjectPrefix,omitempty"`
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

// Say notes what is wrong with an argument: its field, its value, and what is allowed.
type Say func(field string, value any, allowed string)

// OneOf says that a value is none of the allowed ones, where it is none.
func (say Say) OneOf(field, value string, allowed ...string) {
	if last := len(allowed) - 1; !slices.Contains(allowed, value) {
		say(field, value, strings.Join(allowed[:last], ", ")+" or "+allowed[last])
	}
}

// Decode reads the arguments of a plugin over their defaults, and checks them. kind is what they may be called. Its errors name the
// field, the value and what is allowed; all that is wrong is said at once.
func Decode(kind string, object runtime.Object, args schema.ObjectKind, check func(Say)) error {
	raw, err := rawOf(object)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if len(raw) > 0 {
		unknown, err := kjson.UnmarshalStrict(raw, args)
		if err = errors.Join(append(unknown, err)...); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	var wrong []error
	say := func(field string, value any, allowed string) {
		wrong = append(wrong, fmt.Errorf("%s: %q: %s", field, fmt.Sprint(value), allowed))
	}
	if given := args.GroupVersionKind().Kind; given != "" && given != kind {
		say("kind", given, kind+", or left out")
	}
	check(say)
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// rawOf are the arguments as JSON, empty where there are none. The scheduler hands the arguments of
// a plugin that is not its own over undecoded.
func rawOf(object runtime.Object) ([]byte, error) {
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
	return yaml.YAMLToJSONStrict(unknown.Raw)
}

// Check says what is wrong with them.
func (s *Shared) Check(say Say) {
	s.NATS.check(say)
	s.Lease.check(say)
	s.QueuesConfigMap.Check("queuesConfigMap", say)
	s.BrakeConfigMap.Check("brakeConfigMap", say)
	say.OneOf("signatures", s.Signatures, streams.SignaturesOff, streams.SignaturesLog, streams.SignaturesRequire)
	if s.Signatures != streams.SignaturesOff && (s.KeysConfigMap.Name == "" || s.KeysConfigMap.Namespace == "") {
		say("keysConfigMap", s.KeysConfigMap, "namespace and name of the public keys, unless signatures is off")
	}
}

// check says what is wrong with how a plugin is to connect.
func (n *NATS) check(say Say) {
	for server := range strings.SplitSeq(n.NATSURL, ",") {
		parsed, err := url.Parse(strings.TrimSpace(server))
		if err != nil || parsed.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, parsed.Scheme) {
			say("natsURL", n.NATSURL, "URLs such as nats://host:4222, separated by commas; schemes nats, tls, ws, wss")
			break
		}
	}
	if (n.Username == "") != (n.PasswordFile == "") {
		say("username", n.Username+n.PasswordFile, "username and passwordFile together")
	}
	if logins := slices.DeleteFunc([]string{n.Username, n.CredentialsFile, n.NkeySeedFile}, func(one string) bool { return one == "" }); len(logins) > 1 {
		say("credentialsFile", strings.Join(logins, ", "), "one login: credentialsFile, nkeySeedFile, or username and passwordFile")
	}
	for field, name := range map[string]string{"credentialsFile": n.CredentialsFile, "nkeySeedFile": n.NkeySeedFile, "passwordFile": n.PasswordFile, "tls.caFile": n.TLS.CAFile, "tls.certFile": n.TLS.CertFile, "tls.keyFile": n.TLS.KeyFile} {
		if name == "" {
			continue
		}
		if file, err := os.Open(name); err != nil {
			say(field, name, "a file that can be read ("+err.Error()+")")
		} else {
			_ = file.Close() // nothing was written
		}
	}
	if (n.TLS.CertFile == "") != (n.TLS.KeyFile == "") {
		say("tls", n.TLS.CertFile+n.TLS.KeyFile, "certFile and keyFile together")
	}
	if _, err := wire.NewSubjects(n.SubjectPrefix); err != nil {
		say("subjectPrefix", n.SubjectPrefix, "letters, digits, '-', '_' and inner '.', such as makeway")
	}
}

// Same is the error of a profile whose arguments give a field that profiles share another value than the first profile's do; but are those in
// which they may differ. kind is what the arguments, of which both are pointers, are called.
func Same(kind string, first, own any, firstProfile, profile string, but ...string) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(first)
	others, other := runtime.DefaultUnstructuredConverter.ToUnstructured(own)
	if err = errors.Join(err, other); err != nil {
		return err
	}
	but = append(but, "kind", "apiVersion")
	for _, field := range sets.List(sets.KeySet(fields).Union(sets.KeySet(others))) {
		if !slices.Contains(but, field) && !reflect.DeepEqual(fields[field], others[field]) {
			return fmt.Errorf("%s: %s: profile %q gives another value than profile %q: all profiles of one scheduler share it", kind, field, profile, firstProfile)
		}
	}
	return nil
}

// Options are how the arguments ask to connect, under a name that the server lists.
func (n *NATS) Options(name string) natsbus.Options {
	return natsbus.Options{
		URL: n.NATSURL, Name: name, CredentialsFile: n.CredentialsFile, NkeySeedFile: n.NkeySeedFile,
		Username: n.Username, PasswordFile: n.PasswordFile, TLS: n.TLS,
	}
}

// Subjects are the names under the checked prefix of the arguments.
func (n *NATS) Subjects() wire.Subjects {
	subjects, err := wire.NewSubjects(n.SubjectPrefix)
	if err != nil {
		panic(err) // Check has refused it
	}
	return subjects
}

// Check says what is wrong with a ConfigMap of a field.
func (r ConfigMapReference) Check(field string, say Say) {
	if r.Name != "" && r.Namespace == "" {
		say(field+".namespace", r.Namespace, "the namespace of ConfigMap "+r.Name)
	}
}

// check says what is wrong with the Lease.
func (r LeaseReference) check(say Say) {
	if r.Name != "" && r.Namespace == "" {
		say("lease.namespace", r.Namespace, "the namespace of lease "+r.Name)
	}
}

// CheckNamespaces says which names of a field are no namespace's.
func CheckNamespaces(field string, names []string, say Say) {
	for _, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			say(field, name, "names of namespaces, such as kube-system")
		}
	}
}

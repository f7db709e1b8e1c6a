// Package pluginargs are the arguments that makeway's scheduler plugins have in common, and how arguments are read.
package pluginargs

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

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
	TLS TLSFiles `json:"tls,omitempty"`

	// SubjectPrefix begins every subject and, in upper case, every stream name. Two clusters on one
	// NATS use two prefixes. Default makeway.
	SubjectPrefix string `json:"subjectPrefix,omitempty"`
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

// DefaultNATS is how a plugin connects where nothing is given.
func DefaultNATS() NATS {
	return NATS{NATSURL: cmp.Or(os.Getenv("MAKEWAY_NATS_URL"), "nats://127.0.0.1:4222"), SubjectPrefix: wire.DefaultPrefix}
}

// Say notes what is wrong with an argument: its field, its value, and what is allowed.
type Say func(field string, value any, allowed string)

// Decode reads the arguments of a plugin over their defaults, and checks them. kind is what they may be called. Its errors name the
// field, the value and what is allowed; all that is wrong is said at once.
func Decode(kind string, object runtime.Object, args any, check func(Say)) error {
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
	check(func(field string, value any, allowed string) {
		wrong = append(wrong, fmt.Errorf("%s: %q: %s", field, fmt.Sprint(value), allowed))
	})
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

// Check says what is wrong with how a plugin is to connect.
func (n *NATS) Check(say Say) {
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

// Differs names the first argument in which two profiles of one process may not differ; empty where there is none.
func (n *NATS) Differs(other *NATS) string {
	switch {
	case n.NATSURL != other.NATSURL:
		return "natsURL"
	case n.CredentialsFile != other.CredentialsFile:
		return "credentialsFile"
	case n.NkeySeedFile != other.NkeySeedFile:
		return "nkeySeedFile"
	case n.Username != other.Username:
		return "username"
	case n.PasswordFile != other.PasswordFile:
		return "passwordFile"
	case n.TLS != other.TLS:
		return "tls"
	case n.SubjectPrefix != other.SubjectPrefix:
		return "subjectPrefix"
	}
	return ""
}

// Differs is the error of a profile whose arguments give a field that profiles share another value than the first profile's do. kind is
// what the arguments are called.
func Differs(kind, field, profile, first string) error {
	return fmt.Errorf("%s: %s: profile %q gives another value than profile %q: all profiles of one scheduler share it", kind, field, profile, first)
}

// Options are how the arguments ask to connect, under a name that the server lists.
func (n *NATS) Options(name string, failed func(kind string, err error)) natsbus.Options {
	return natsbus.Options{
		URL: n.NATSURL, Name: name, CredentialsFile: n.CredentialsFile, NkeySeedFile: n.NkeySeedFile,
		Username: n.Username, PasswordFile: n.PasswordFile, TLS: natsbus.TLSFiles(n.TLS), Failed: failed,
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

// Check says what is wrong with the Lease.
func (r LeaseReference) Check(say Say) {
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

package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/internal/pluginargs"
	"makeway.dev/makeway/plugin/natsbus"
)

func argsOf(json string) runtime.Object { return &runtime.Unknown{Raw: []byte(json)} }

func TestArgumentsThatAreLeftOutHaveTheirDefaults(t *testing.T) {
	for name, object := range map[string]runtime.Object{"no arguments": nil, "empty": argsOf(`{}`), "no bytes": &runtime.Unknown{}} {
		args, err := decodeArgs(object)

		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(*args, defaultArgs()) {
			t.Errorf("%s: got %+v, want %+v", name, *args, defaultArgs())
		}
	}
}

func TestArgumentsAreTakenAsGiven(t *testing.T) {
	args, err := decodeArgs(argsOf(`{"apiVersion": "makeway.dev/v1", "kind": "MakeWayArgs", "natsURL": "tls://a:1,tls://b:2", "subjectPrefix": "one.two",
		"planTimeout": "250ms", "maxCandidates": 4, "mode": "observe", "notAfter": "30s", "lease": {"namespace": "ns", "name": "my-scheduler"}}`))
	if err != nil {
		t.Fatal(err)
	}

	if args.NATSURL != "tls://a:1,tls://b:2" || args.SubjectPrefix != "one.two" || args.PlanTimeout.Duration != 250*time.Millisecond ||
		args.MaxCandidates != 4 || args.Mode != "observe" || args.NotAfter.Duration != 30*time.Second ||
		args.Lease != (pluginargs.LeaseReference{Namespace: "ns", Name: "my-scheduler"}) {
		t.Errorf("got %+v", *args)
	}
}

func TestALeaseWithoutNameMeansNoElection(t *testing.T) {
	args, err := decodeArgs(argsOf(`{"lease": {"name": ""}}`))

	if err != nil {
		t.Fatal(err)
	}
	if args.Lease.Name != "" {
		t.Errorf("lease name %q, want none", args.Lease.Name)
	}
}

func TestArgumentsMayBeYAML(t *testing.T) {
	args, err := decodeArgs(&runtime.Unknown{Raw: []byte("mode: \"off\"\n"), ContentType: runtime.ContentTypeYAML})

	if err != nil {
		t.Fatal(err)
	}
	if args.Mode != "off" {
		t.Errorf("mode %q, want off", args.Mode)
	}
}

func TestWrongArgumentsAreRefusedWithFieldValueAndWhatIsAllowed(t *testing.T) {
	for json, want := range map[string][]string{
		`{"natsURL": "http://x"}`:                                       {"natsURL", `"http://x"`, "nats://host:4222"},
		`{"natsURL": "nats://a, "}`:                                     {"natsURL"},
		`{"credentialsFile": "/no/such/file"}`:                          {"credentialsFile", `"/no/such/file"`, "can be read"},
		`{"nkeySeedFile": "/no/such/file"}`:                             {"nkeySeedFile", `"/no/such/file"`, "can be read"},
		`{"passwordFile": "/dev/null"}`:                                 {"username", "passwordFile together"},
		`{"credentialsFile": "/dev/null", "nkeySeedFile": "/dev/null"}`: {"credentialsFile", "one login"},
		`{"username": "a", "passwordFile": "/no"}`:                      {"passwordFile", `"/no"`, "can be read"},
		`{"subjectPrefix": "a.*"}`:                                      {"subjectPrefix", `"a.*"`, "letters"},
		`{"planTimeout": "0s"}`:                                         {"planTimeout", `"0s"`, "from 5ms to 5s"},
		`{"planTimeout": "soon"}`:                                       {"MakeWayArgs"},
		`{"maxCandidates": 0}`:                                          {"maxCandidates", `"0"`, "from 1 to 100"},
		`{"maxCandidates": 101}`:                                        {"maxCandidates", `"101"`, "from 1 to 100"},
		`{"mode": "dry-run"}`:                                           {"mode", `"dry-run"`, "off, observe or enforce"},
		`{"tracing": {"endpoint": "http://collector:99999"}}`:           {"tracing.endpoint", `"http://collector:99999"`, "http://collector:4318"},
		`{"tracing": {"endpoint": "http://user:password@collector"}}`:   {"tracing.endpoint", `"...@..."`, "OTEL_EXPORTER_OTLP_HEADERS"},
		`{"notAfter": "1h"}`:                                            {"notAfter", `"1h0m0s"`, "from 5s to 10m0s"},
		`{"lease": {"namespace": "", "name": "x"}}`:                     {"lease.namespace", `""`, "namespace of lease x"},
		`{"kind": "OtherArgs"}`:                                         {"kind", `"OtherArgs"`, "MakeWayArgs"},
		`{"planTimeOut": "1s"}`:                                         {"unknown field", "planTimeOut"},
		`{"lease": {"nam": "x"}}`:                                       {"unknown field", "lease.nam"},
		`{"mode": "off", "mode": "observe"}`:                            {"duplicate field", "mode"},
		`{"mode": "x", "maxCandidates": -1}`:                            {"mode", "maxCandidates"},
		`[]`:                                                            {"MakeWayArgs"},
	} {
		_, err := decodeArgs(argsOf(json))

		if err == nil {
			t.Errorf("%s: no error", json)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not say %q", json, err, part)
			}
		}
	}
}

func TestProfilesMayDifferOnlyInWhatIsTheirs(t *testing.T) {
	one, other := defaultArgs(), defaultArgs()
	other.Mode, other.MaxCandidates, other.PlanTimeout.Duration = "off", 1, time.Second
	same := func() string {
		return fmt.Sprint(pluginargs.Same("MakeWayArgs", &one, &other, "first", "second", ofProfile...))
	}
	if got := same(); got != "<nil>" {
		t.Errorf("refused: %s", got)
	}

	other.PolicyConfigMap.Name = "other"
	if got := same(); !strings.HasPrefix(got, `MakeWayArgs: policyConfigMap: profile "second"`) {
		t.Errorf("got %q, want policyConfigMap", got)
	}
	other.NATSURL = "nats://elsewhere:4222"

	if got := same(); !strings.HasPrefix(got, "MakeWayArgs: natsURL: ") {
		t.Errorf("got %q, want natsURL", got)
	}
}

func TestTLSFilesThatAreMissingOrHalfAreRefused(t *testing.T) {
	directory := t.TempDir()
	file := func(name string) string { return filepath.Join(directory, name) }
	for _, name := range []string{"ca.crt", "client.crt", "client.key"} {
		if err := os.WriteFile(file(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := defaultArgs()
	args.TLS = natsbus.TLSFiles{CAFile: file("no.crt"), CertFile: file("ca.crt")}
	var wrong []string
	say := func(field string, _ any, allowed string) { wrong = append(wrong, field+": "+allowed) }

	args.check(say)

	if all := strings.Join(wrong, "; "); !strings.Contains(all, "tls.caFile") || !strings.Contains(all, "certFile and keyFile together") {
		t.Errorf("wrong: %s", all)
	}
	args.TLS = natsbus.TLSFiles{CAFile: file("ca.crt"), CertFile: file("client.crt"), KeyFile: file("client.key")}
	wrong = nil
	if args.check(say); len(wrong) > 0 {
		t.Error(wrong)
	}
}

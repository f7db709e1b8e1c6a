package queues

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"makeway.dev/makeway/plugin/internal/pluginargs"
)

func TestWrongArgumentsAreRefusedWithFieldValueAndWhatIsAllowed(t *testing.T) {
	for json, want := range map[string][]string{
		`{"exemptNamespaces": ["kube-system", "A"]}`:                      {"exemptNamespaces", `"A"`, "names of namespaces"},
		`{"whenUnknown": "open"}`:                                         {"whenUnknown", `"open"`, "hold or pass"},
		`{"mode": "x", "natsURL": "http://n"}`:                            {"mode", "natsURL"},
		`{"kind": "MakeWayArgs"}`:                                         {"kind", "MakeWayQueuesArgs"},
		`{"planTimeout": "1s"}`:                                           {"unknown field", "planTimeout"},
		`{"signatures": "log", "keysConfigMap": {"name": ""}}`:            {"keysConfigMap"},
		`{"queuesConfigMap": {"name": "q", "namespace": ""}, "mode": ""}`: {"queuesConfigMap.namespace", "mode"},
	} {
		_, err := decodeArgs(&runtime.Unknown{Raw: []byte(json)})

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

func TestProfilesMayDifferInModeAlone(t *testing.T) {
	one, other := DefaultArgs(), DefaultArgs()
	same := func() error { return pluginargs.Same("MakeWayQueuesArgs", &one, &other, "first", "second", "mode") }
	if other.Mode = "observe"; same() != nil {
		t.Errorf("refused for %v", same())
	}
	if other.WhenUnknown = whenUnknownPass; same() == nil || !strings.Contains(same().Error(), "MakeWayQueuesArgs: whenUnknown: profile \"second\"") {
		t.Errorf("got %v, want whenUnknown", same())
	}
}

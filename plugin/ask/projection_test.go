package ask

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"makeway.dev/makeway/plugin/wire"
)

// The planner's side compares what it reads of both files.
func TestOnlyWhatThePlannerReadsOfAPodIsSent(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile("../testdata/pods/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var full v1.Pod
	if err := json.Unmarshal(read("full.json"), &full); err != nil {
		t.Fatal(err)
	}

	sent, err := wire.Encode(project(&full))
	if err != nil {
		t.Fatal(err)
	}

	if want := bytes.TrimSpace(read("projected.json")); !bytes.Equal(sent, want) {
		t.Errorf("sent\n%s\nwant\n%s", sent, want)
	}
	if bytes.Contains(sent, []byte("not-read")) {
		t.Error("what the planner does not read is in it")
	}
	if full.Spec.Containers[0].Env == nil || full.ManagedFields == nil {
		t.Error("the pod itself has changed")
	}
}

func TestSecretsAndEscapesDoNotMakeAQuestionLarge(t *testing.T) {
	p := pod("p", "", 100, large).Annotation("text", strings.Repeat("<", 190_000)).Obj()
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PASSWORD", Value: strings.Repeat("x", 1<<20)}}

	request, err := Question{Mode: wire.ModeEnforce, Classes: One(p, Potential{}), Candidates: 1}.Request(wire.PlanRequest{})
	if err != nil {
		t.Fatal(err)
	}

	if data, err := wire.Encode(request); err != nil || len(data) > 4096 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

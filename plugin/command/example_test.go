package command_test

import (
	"os/exec"
	"testing"
)

func TestTheSchedulerOfTheExamplesCompiles(t *testing.T) {
	vet := exec.Command("go", "vet", "../../examples/scheduler/main.go")
	if said, err := vet.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

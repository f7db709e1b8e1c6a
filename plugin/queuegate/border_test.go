package queuegate

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Quota is another feature than preemption, with another failure: the gate is to be enabled without it.
func TestTheGateImportsNothingOfPreemption(t *testing.T) {
	const module = "makeway.dev/makeway/plugin/"
	leaves := []string{"internal/goroutines", "internal/minor", "wire"}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if own, ok := strings.CutPrefix(path, module); ok && !slices.Contains(leaves, own) {
				t.Errorf("%s imports %s", name, own)
			}
		}
	}
}

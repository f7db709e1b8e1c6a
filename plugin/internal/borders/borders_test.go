// Package borders holds the packages of this module to what each may import.
package borders

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "makeway.dev/makeway/plugin/"

// border is what a package may import.
type border struct {
	own   []string // of this module, besides the leaves
	never []string // beginnings of paths of other modules
}

// leaves import nothing of this module but one another, and everything may import them.
var leaves = []string{"internal/failpoints", "internal/goroutines", "internal/informing", "internal/minor", "internal/perscheduler", "internal/telemetry", "internal/trial", "wire"}

// without has a package be pure over what it is given: it asks no API server, no NATS and no clock.
var without = []string{"k8s.io/client-go", "k8s.io/utils/clock", "github.com/nats-io", "makeway.dev/makeway/plugin/natsbus"}

var borders = map[string]border{
	"wire":                  {never: []string{"k8s.io", "github.com/nats-io"}},
	"tracing":               {},
	"internal/failpoints":   {},
	"internal/goroutines":   {},
	"internal/informing":    {},
	"internal/minor":        {},
	"internal/perscheduler": {},
	"internal/pluginargs":   {own: []string{"natsbus", "streams"}},
	"internal/trial":        {},
	"natsbus":               {own: []string{"tracing"}, never: []string{"k8s.io/kubernetes"}},
	// Quota is another feature than preemption, with another failure: it is enabled without it, too.
	"queues":  {own: []string{"control", "internal/pluginargs", "natsbus", "streams"}},
	"ask":     {own: []string{"natsbus", "tracing"}},
	"control": {own: []string{"natsbus"}, never: []string{"k8s.io/kubernetes", "k8s.io/kube-scheduler"}},
	"streams": {own: []string{"natsbus", "orders"}},
	"plugin":  {own: []string{"ask", "control", "internal/pluginargs", "memory", "natsbus", "orders", "queues", "streams", "tracing", "verify"}},
	"shadow":  {own: []string{"ask", "natsbus", "verify"}},
	"verify":  {never: without},
	"memory":  {own: []string{"orders"}, never: without[:1]},
	"orders":  {own: []string{"tracing"}, never: without},
}

func TestEachPackageImportsWhatItsBorderAllows(t *testing.T) {
	for name, border := range borders {
		t.Run(name, func(t *testing.T) {
			for path, at := range imports(t, name) {
				own, isOwn := strings.CutPrefix(path, module)
				if isOwn && own != name && !slices.Contains(leaves, own) && !slices.Contains(border.own, own) {
					t.Errorf("%s imports %s", at, own)
				}
				if slices.ContainsFunc(border.never, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
					t.Errorf("%s imports %s", at, path)
				}
			}
		})
	}
}

// sources are the files of a package, but for its tests.
func sources(t *testing.T, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", name, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	return slices.DeleteFunc(files, func(at string) bool { return strings.HasSuffix(at, "_test.go") })
}

// imports are what the files of a package import, each with a file that does.
func imports(t *testing.T, name string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, at := range sources(t, name) {
		file, err := parser.ParseFile(token.NewFileSet(), at, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			found[path] = at
		}
	}
	return found
}

// Bounds of a package with a border, tests and generated files not counted.
const (
	mostFiles = 15
	mostLines = 450
)

func TestPackagesAndFilesStaySmall(t *testing.T) {
	for name := range borders {
		files := sources(t, name)
		if len(files) > mostFiles {
			t.Errorf("%s has %d files, at most %d are meant to be", name, len(files), mostFiles)
		}
		for _, at := range files {
			text, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(text, []byte("\n")); lines > mostLines && !strings.HasSuffix(at, "_gen.go") {
				t.Errorf("%s has %d lines, at most %d are meant to be", at, lines, mostLines)
			}
		}
	}
}

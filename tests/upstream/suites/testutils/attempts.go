//go:build !kube136

package testutils

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/component-base/metrics/legacyregistry"
)

// attemptsSuffixes end the names of the plugin's counters of its calls by result, and of those without a plan by what became of them.
var attemptsSuffixes = []string{"attempts_total", "unplanned_total"}

// writeAttempts writes how the calls of MakeWay in this process have ended so far, so that it can be
// told who made room.
func writeAttempts() error {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return err
	}
	counts := map[string]map[string]float64{}
	for _, family := range families {
		name, found := strings.CutPrefix(family.GetName(), "makeway_scheduler_")
		if !found || !slices.ContainsFunc(attemptsSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
			continue
		}
		counts[name] = map[string]float64{}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				counts[name][label.GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	data, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "attempts.json"), data, 0o600)
}

//go:build !kube136

package testutils

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/component-base/metrics/legacyregistry"
)

// attemptsSuffix ends the names of the plugins' counters of their calls by result.
const attemptsSuffix = "attempts_total"

// writeAttempts writes how the calls of MakeWay and MakeWayFallback in this process have ended so far, so that it can be
// told who made room.
func writeAttempts() error {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return err
	}
	counts := map[string]map[string]float64{}
	for _, family := range families {
		name, found := strings.CutPrefix(family.GetName(), "makeway_scheduler_")
		if !found || !strings.HasSuffix(name, attemptsSuffix) {
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

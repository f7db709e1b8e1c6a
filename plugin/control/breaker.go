package control

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Breaker is the name of the ConfigMap, in makeway's own namespace, that keeps what the evictors' breaker is open for. It is read as
// `makeway.core.policy.breaker` reads it; both are tested with the cases of bus/testdata/breaker.
const Breaker = "makeway-breaker"

const (
	breakerLasts = 10 * time.Minute // for a namespace; for all it is open until it is reset
	resetAhead   = time.Hour        // how far ahead the clock of whoever has reset it may be
	resetKey     = "resetAt"
)

// causes are what the breaker opens for.
var causes = []string{"wasted-victims", "mismatches", "signatures", "clock-skew"}

// trips are what the breaker is open for: for all, or for namespaces, each until a time.
type trips struct {
	everywhere bool
	namespaces map[string]time.Time
}

// parseTrips is what the ConfigMap says at a time. A known cause whose value cannot be read holds.
func parseTrips(data map[string]string, now time.Time) *trips {
	found := &trips{namespaces: map[string]time.Time{}}
	reset, err := time.Parse(time.RFC3339, strings.TrimSpace(data[resetKey]))
	wasReset := err == nil && !reset.After(now.Add(resetAhead))
	for key, value := range data {
		cause, namespace, _ := strings.Cut(key, ".")
		if !slices.Contains(causes, cause) {
			continue
		}
		text, _, _ := strings.Cut(value, " ")
		since, err := time.Parse(time.RFC3339, strings.TrimSpace(text))
		switch {
		case err == nil && wasReset && !since.After(reset):
		case namespace == "":
			found.everywhere = true
		case err != nil:
			found.namespaces[namespace] = now.AddDate(1, 0, 0)
		case since.Add(breakerLasts).After(found.namespaces[namespace]):
			found.namespaces[namespace] = since.Add(breakerLasts)
		}
	}
	return found
}

// EvictorsRefuse reports why nothing is evicted for preemptors of a namespace: the evictors' breaker is open; empty where it is not, or
// where that cannot be read, which Restrictions says.
func (c *Control) EvictorsRefuse(namespace string) string {
	switch open := c.trips.Load(); {
	case open == nil:
	case open.everywhere:
		return "the evictors' breaker is open"
	case c.Clock.Now().Before(open.namespaces[namespace]):
		return "the evictors' breaker is open for the pod's namespace"
	}
	return ""
}

// takeBreaker takes the ConfigMap of the breaker as it is; nil where there is none.
func (c *Control) takeBreaker(found *v1.ConfigMap) {
	open := &trips{}
	if found != nil {
		open = parseTrips(found.Data, c.Clock.Now())
	}
	c.trips.Store(open)
	c.Changed(true)
}

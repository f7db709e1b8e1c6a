package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kinds of constraints. Each can be left out of a cluster, so that a fault shows in small company.
const (
	resources       = "resources"       // cpu, memory, ephemeral storage
	podCounts       = "pod-counts"      // few pods to a node
	extended        = "extended"        // extended resources and huge pages
	shapes          = "shapes"          // init containers, sidecars, overhead, pod-level, in-place resize
	priorities      = "priorities"      // many priorities, negative ones, none, equal ones, pods not to be removed
	budgets         = "budgets"         // PodDisruptionBudgets
	terminating     = "terminating"     // pods that are leaving
	nominated       = "nominated"       // pods nominated to a node
	assumed         = "assumed"         // pods placed in the scheduler's memory alone
	taints          = "taints"          // taints and tolerations
	unschedulable   = "unschedulable"   // cordoned nodes
	nodeAffinity    = "node-affinity"   // node selectors and required node affinity
	nodeNames       = "node-names"      // affinity to nodes by name
	hostPorts       = "host-ports"      // host ports with addresses and protocols
	podAffinity     = "pod-affinity"    // required affinity of the preemptor
	podAntiAffinity = "anti-affinity"   // required anti-affinity of the preemptor
	existingAnti    = "existing-anti"   // required anti-affinity of the other pods
	topologySpread  = "topology-spread" // hard topology spread
	readWriteOnce   = "rwop"            // claims that one pod alone may use
	volumes         = "volumes"         // bound volumes of some nodes or zones
)

var kinds = append([]string{
	resources, podCounts, extended, shapes, priorities, budgets, terminating, nominated, assumed, taints,
	unschedulable, nodeAffinity, nodeNames, hostPorts, podAffinity, podAntiAffinity, existingAnti,
	topologySpread, readWriteOnce, volumes,
}, kindsOfGroups...)

// parseKinds reads a list of kinds; an empty one means all.
func parseKinds(list string) ([]string, error) {
	if list == "" {
		return kinds, nil
	}
	var chosen []string
	for kind := range strings.SplitSeq(list, ",") {
		if !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("constraint %q: want some of %s", kind, strings.Join(kinds, ","))
		}
		chosen = append(chosen, kind)
	}
	return chosen, nil
}

// someKinds draws the kinds of one cluster: mostly few, sometimes most of those allowed.
func someKinds(r *rand.Rand, allowed []string) []string {
	share := r.Float64() * r.Float64()
	var chosen []string
	for _, kind := range allowed {
		if r.Float64() < share || (kind == resources && r.IntN(4) > 0) {
			chosen = append(chosen, kind)
		}
	}
	if len(chosen) == 0 {
		chosen = append(chosen, pick(r, allowed...))
	}
	return chosen
}

// pick gives any of some values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// few gives each value with a probability.
func few[T any](r *rand.Rand, probability float64, values ...T) []T {
	var chosen []T
	for _, value := range values {
		if r.Float64() < probability {
			chosen = append(chosen, value)
		}
	}
	return chosen
}

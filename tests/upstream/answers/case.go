package main

import (
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
)

// Case is a cluster, a pod that looks for a node in it, and what kube-scheduler answers. The objects are
// as the API server would give them.
type Case struct {
	Seed        uint64   `json:"seed"`
	Constraints []string `json:"constraints"`
	// Note says why a case was kept.
	Note string `json:"note,omitempty"`

	Namespaces []*v1.Namespace               `json:"namespaces"`
	Nodes      []*v1.Node                    `json:"nodes"`
	Pods       []*v1.Pod                     `json:"pods"`
	Budgets    []*policy.PodDisruptionBudget `json:"budgets,omitempty"`
	Claims     []*v1.PersistentVolumeClaim   `json:"claims,omitempty"`
	Volumes    []*v1.PersistentVolume        `json:"volumes,omitempty"`
	groups
	// Assumed are the pods that the scheduler has placed in its memory alone, by UID.
	Assumed   map[string]string `json:"assumed,omitempty"`
	Preemptor *v1.Pod           `json:"preemptor"`
	// Written is the preemptor as it was written, before the API server filled in what Preemptor has.
	Written *v1.Pod `json:"written,omitempty"`

	Answer *Answer `json:"answer,omitempty"`
}

// Answer is what kube-scheduler's filters and DefaultPreemption say; of terminating pods what they would say by makeway's rule.
type Answer struct {
	// Fits are the nodes where the pod has room as they are.
	Fits []string `json:"fits,omitempty"`
	// Potential are the nodes whose status is Unschedulable: removing pods may help.
	Potential []string `json:"potential"`
	// Candidates are those where it does, looking at all of them.
	Candidates map[string]Victims `json:"candidates"`
	// Chosen is the best of them; empty where there is none.
	Chosen string `json:"chosen,omitempty"`
	// Sampled is the best of a tenth of the nodes, as kube-scheduler looks at by default.
	Sampled string `json:"sampled,omitempty"`
}

// Victims are the pods that have to go on a node, by UID, most important first.
type Victims struct {
	UIDs       []string `json:"uids"`
	Violations int64    `json:"violations,omitempty"`
}

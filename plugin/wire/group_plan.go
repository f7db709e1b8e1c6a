package wire

import "encoding/json"

// Bounds of a GroupPlanRequest; one beyond them is refused.
const (
	MostMembers       = 5000
	MostMemberClasses = 16
	MostTopologyKeys  = 4
)

// GroupPreemptor is the PodGroup that room is made for, with the priority of all its members.
type GroupPreemptor struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid" check:"token"`
	Priority  int32  `json:"priority"`
}

// MemberClass is Count members that are equal in all that a scheduler looks at; Pod is one of them. Nodes are those that
// removing pods may help: of the class before it that SameNodesAs counts, where that is given, and Nodes is empty.
type MemberClass struct {
	Pod         json.RawMessage `json:"pod"`
	Count       int64           `json:"count" check:"count<=5000"`
	Nodes       NodeSelection   `json:"nodes"`
	SameNodesAs *int64          `json:"sameNodesAs,omitempty" check:"count<=15"`
}

// GroupPlanRequest is the plugin's question about a pod group: what would have to go for MustPlace of its members to fit?
// Topology are keys of node labels within whose one value all members must be. Placed are members that are bound or assumed.
// Nominations are without those of the members. What is in PlanRequest too means the same here.
type GroupPlanRequest struct {
	APIVersion          string           `json:"apiVersion"`
	RequestID           string           `json:"requestId"`
	ClusterUID          string           `json:"clusterUid"`
	Mode                string           `json:"mode" check:"off|observe|enforce"`
	TimeoutMilliseconds int64            `json:"timeoutMilliseconds"`
	Profile             Profile          `json:"profile"`
	Group               GroupPreemptor   `json:"group"`
	Classes             []MemberClass    `json:"classes" check:"<=16"`
	MustPlace           int64            `json:"mustPlace" check:"count<=5000"`
	Topology            []string         `json:"topology,omitempty" check:"<=4"`
	Placed              []Placement      `json:"placed,omitempty"`
	Nominations         []Placement      `json:"nominations,omitempty"`
	Assumed             []Placement      `json:"assumed,omitempty"`
	LiveOrders          []LiveOrder      `json:"liveOrders,omitempty"`
	Seen                map[string]int64 `json:"seen,omitempty"`
	RefusedVictims      []string         `json:"refusedVictims,omitempty" check:"<=64"`
}

// MemberPlacement says that Count members of a class, by its place in the request, go to a node.
type MemberPlacement struct {
	MemberClass int64  `json:"memberClass" check:"count"`
	Node        string `json:"node"`
	Count       int64  `json:"count" check:"count"`
}

// GroupVictim is a pod that must go for the plan, with the rule that allows it. Unit is the group with which it goes whole; Closes is
// as of a victim of an order.
type GroupVictim struct {
	UID          string `json:"uid"`
	Node         string `json:"node"`
	Rule         string `json:"rule"`
	PDBViolating bool   `json:"pdbViolating,omitempty"`
	Unit         string `json:"unit,omitempty"`

	Closes *ClosedDomain `json:"closes,omitempty"`
}

// GroupPrice is what a group plan costs, by the terms of the policy's groups.objective.
type GroupPrice struct {
	PDBViolations   int64 `json:"pdbViolations,omitempty"`
	HighestPriority int64 `json:"highestPriority,omitempty"`
	GroupsBroken    int64 `json:"groupsBroken,omitempty"`
	HighestVictims  int64 `json:"highestVictims,omitempty"`
	PrioritySum     int64 `json:"prioritySum,omitempty"`
	Victims         int64 `json:"victims,omitempty"`
}

// TopologyDomain is the nodes that have a label's value, which may be empty.
type TopologyDomain struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// GroupPlan says where the members go and which pods must go for them. Placements are in an order in which the members can
// be placed one after the other. Price is nil where there are no victims.
type GroupPlan struct {
	Placements []MemberPlacement `json:"placements,omitempty"`
	Victims    []GroupVictim     `json:"victims,omitempty"`
	Awaited    []Awaited         `json:"awaited,omitempty"`
	Domains    []TopologyDomain  `json:"domains,omitempty"`
	Price      *GroupPrice       `json:"price,omitempty"`
}

// PricedDomain is a topology domain that a plan for a group was made in. Price is nil where there is no plan, or nothing
// has to go.
type PricedDomain struct {
	Domains   []TopologyDomain `json:"domains"`
	Placeable int64            `json:"placeable,omitempty" check:"count<=5000"`
	Price     *GroupPrice      `json:"price,omitempty"`
}

// GroupDecision says in a decision record who of a group goes where, and what that costs by the terms of Objective.
type GroupDecision struct {
	Members    int64             `json:"members" check:"count<=5000"`
	Objective  []string          `json:"objective,omitempty"`
	Placements []MemberPlacement `json:"placements,omitempty"`
	Awaited    []Awaited         `json:"awaited,omitempty"`
	Domains    []TopologyDomain  `json:"domains,omitempty"`
	Price      *GroupPrice       `json:"price,omitempty"`
	Priced     []PricedDomain    `json:"priced,omitempty"`
	Placeable  int64             `json:"placeable,omitempty" check:"count<=5000"`
	Missing    map[string]int64  `json:"missing,omitempty"`
}

// GroupPlanReply is the planner's answer about a group. A plan without victims says that the planner's columns need none.
type GroupPlanReply struct {
	APIVersion         string     `json:"apiVersion"`
	RequestID          string     `json:"requestId"`
	Planner            string     `json:"planner"`
	Status             string     `json:"status" check:"candidates|refused|notSynced"`
	SnapshotRevision   int64      `json:"snapshotRevision,omitempty"`
	PolicyRevision     string     `json:"policyRevision,omitempty"`
	DecisionID         string     `json:"decisionId,omitempty"`
	Plan               *GroupPlan `json:"plan,omitempty"`
	Refusal            *Refusal   `json:"refusal,omitempty"`
	LeftToVerification []string   `json:"leftToVerification,omitempty"`
}

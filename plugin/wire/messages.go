// Package wire holds the messages of the bus as Go structs. The Python structs in
// bus/src/makeway/bus/messages.py are the source of the contract; the golden files in bus/testdata
// hold both sides to it, byte for byte. It imports nothing of Kubernetes but its JSON decoder, so that it can be
// fuzzed.
package wire

import (
	"encoding/json"
	"slices"
)

// APIVersion is the major version of plan request and plan reply.
const APIVersion = "makeway.dev/v1"

// CloudEvents types of the messages that travel in streams.
const (
	TypeOrder    = "dev.makeway.order.v1"
	TypeOutcome  = "dev.makeway.outcome.v1"
	TypeDecision = "dev.makeway.decision.v1"
	TypeControl  = "dev.makeway.control.v1"
)

// Modes.
const (
	ModeOff     = "off"
	ModeObserve = "observe"
	ModeEnforce = "enforce"
)

// What a scheduler does where it gets no plan.
const (
	WhenUnplannedFallback = "fallback"
	WhenUnplannedHold     = "hold"
	GroupPreemptorsHold   = "hold"
)

// Kinds of an order, by what it makes room for; a quota order by what it brings down.
const (
	KindPod   = "pod"
	KindGroup = "group"
	KindQuota = "quota"
)

// Statuses of a plan reply.
const (
	StatusCandidates = "candidates"
	StatusRefused    = "refused"
	StatusNotSynced  = "notSynced"
)

// Results of an order.
const (
	ResultSucceeded = "succeeded"
	ResultFailed    = "failed"
	ResultExpired   = "expired"
	ResultRefused   = "refused"
	ResultCancelled = "cancelled"
)

// PodRef is one incarnation of a pod. Only UID identifies.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Placement is a pod on a node as the scheduler's memory has it.
type Placement struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node"`
}

// LiveOrder is an order without an outcome yet. Victims are UIDs. PreemptorUID is of the pod, or of the PodGroup, whose orders
// have no Node.
type LiveOrder struct {
	OrderID      string   `json:"orderId" check:"token"`
	PreemptorUID string   `json:"preemptorUid"`
	Node         string   `json:"node,omitempty"`
	Victims      []string `json:"victims,omitempty"`
}

// Awaited is a pod that leaves anyway. OrderID is of the live order that removes it; one that is terminating has none, but its
// Namespace and Name, and Until, from when on it is no longer expected to leave.
type Awaited struct {
	UID       string `json:"uid"`
	OrderID   string `json:"orderId,omitempty" check:"token"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Until     *Time  `json:"until,omitempty"`
}

// Preemptor is the pod that room is made for.
type Preemptor struct {
	Namespace     string `json:"namespace"`
	Name          string `json:"name"`
	UID           string `json:"uid" check:"token"`
	Priority      int32  `json:"priority"`
	SchedulerName string `json:"schedulerName"`
}

// Victim is a pod chosen for eviction, with the rule that made it removable. Unit is the group with which it goes whole or not
// at all; its pods may be on other nodes than the order's.
type Victim struct {
	Namespace          string `json:"namespace"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Node               string `json:"node"`
	Priority           int32  `json:"priority"`
	GracePeriodSeconds int64  `json:"gracePeriodSeconds"`
	Rule               string `json:"rule"`
	PDBViolating       bool   `json:"pdbViolating,omitempty"`
	Assumed            bool   `json:"assumed,omitempty"`
	Detail             string `json:"detail,omitempty"`
	Unit               string `json:"unit,omitempty"`

	Closes *ClosedDomain `json:"closes,omitempty"`
}

// ClosedDomain is the nodes with a label's value, of which a pod keeps members of a group away by a rule. In an order for a group it
// says why a victim goes though no member comes to its node.
type ClosedDomain struct {
	Rule  string `json:"rule" check:"podAntiAffinity|existingPodAntiAffinity"`
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Dependency is an object that a refusal depends on.
type Dependency struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// Refusal says why no preemption helps.
type Refusal struct {
	Reason      string         `json:"reason"`
	Message     string         `json:"message"`
	NodeReasons map[string]int `json:"nodeReasons,omitempty"`
	RetryAt     *Time          `json:"retryAt,omitempty"`
	DependsOn   []Dependency   `json:"dependsOn,omitempty"`
}

// NodeSelection is a set of nodes, as its members or as all but them.
type NodeSelection struct {
	Names  []string `json:"names,omitempty"`
	AllBut bool     `json:"allBut,omitempty"`
}

// Profile names the scheduler profile's filter plugins and their arguments.
type Profile struct {
	Name       string                     `json:"name"`
	Filters    []string                   `json:"filters,omitempty"`
	FilterArgs map[string]json.RawMessage `json:"filterArgs,omitempty"`
}

// PlanRequest is the plugin's question: what would have to go for this pod to fit?
type PlanRequest struct {
	APIVersion          string          `json:"apiVersion"`
	RequestID           string          `json:"requestId"`
	ClusterUID          string          `json:"clusterUid"`
	Mode                string          `json:"mode" check:"off|observe|enforce"`
	TimeoutMilliseconds int64           `json:"timeoutMilliseconds"`
	MaxCandidates       int             `json:"maxCandidates"`
	Profile             Profile         `json:"profile"`
	Pod                 json.RawMessage `json:"pod"`
	Nodes               NodeSelection   `json:"nodes"`
	Nominations         []Placement     `json:"nominations,omitempty"`
	Assumed             []Placement     `json:"assumed,omitempty"`
	LiveOrders          []LiveOrder     `json:"liveOrders,omitempty"`
	// Seen is how far the scheduler's watches have come: the highest resourceVersion by resource.
	Seen map[string]int64 `json:"seen,omitempty"`
	// Ahead: asked while the filters still run; if the pod fits, nothing comes of the answer.
	Ahead bool `json:"ahead,omitempty"`
	// RefusedVictims are UIDs of pods whose deletion the API server lately refused for good for this preemptor.
	RefusedVictims []string `json:"refusedVictims,omitempty" check:"<=64"`
	// IgnoreColumns: every node of Nodes with a removable pod comes back as unmodelled.
	IgnoreColumns bool `json:"ignoreColumns,omitempty"`
}

// MostRefusedVictims is how many RefusedVictims a request may have; a longer one is refused.
const MostRefusedVictims = 64

// Removable is a pod that policy allows to be removed; Victim where the plan needs it gone. Unit is the group with which it
// goes whole or not at all; all its pods stand next to one another. Node is where it runs, if that is not the candidate's.
type Removable struct {
	UID          string `json:"uid"`
	Rule         string `json:"rule"`
	Victim       bool   `json:"victim,omitempty"`
	PDBViolating bool   `json:"pdbViolating,omitempty"`
	Unit         string `json:"unit,omitempty"`
	Node         string `json:"node,omitempty"`
}

// Candidate is a node that would do. Removable is in the order in which pods are offered back.
type Candidate struct {
	Node          string      `json:"node"`
	Removable     []Removable `json:"removable,omitempty"`
	Awaited       []Awaited   `json:"awaited,omitempty"`
	PDBViolations int         `json:"pdbViolations,omitempty"`
	MaxVictims    int         `json:"maxVictims,omitempty"`
}

// PlanReply is the planner's answer.
type PlanReply struct {
	APIVersion       string      `json:"apiVersion"`
	RequestID        string      `json:"requestId"`
	Planner          string      `json:"planner"`
	Status           string      `json:"status" check:"candidates|refused|notSynced"`
	SnapshotRevision int64       `json:"snapshotRevision,omitempty"`
	PolicyRevision   string      `json:"policyRevision,omitempty"`
	DecisionID       string      `json:"decisionId,omitempty"`
	Candidates       []Candidate `json:"candidates,omitempty"`
	Unmodelled       []Candidate `json:"unmodelled,omitempty"`
	UnmodelledTotal  int         `json:"unmodelledTotal,omitempty"`
	Refusal          *Refusal    `json:"refusal,omitempty"`
	// Sample is one of the nodes that the columns rule out, with all that may be removed there.
	Sample *Candidate `json:"sample,omitempty"`
}

// Fence says who may write orders: Epoch must not be below what the named object holds now.
type Fence struct {
	Kind      string `json:"kind" check:"lease|kv"`
	Name      string `json:"name"`
	Epoch     int64  `json:"epoch"`
	Namespace string `json:"namespace,omitempty"`
}

// NominationToClear is a pod of lower priority whose nomination an order clears; Node is to which, if not to the order's.
type NominationToClear struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
}

// OrderedGroup is the PodGroup that room is made for, as it was when the order was verified. MinCount is its gang's, 0 where it
// is none. MustPlace: of the order's Members at least so many must still wait for their nodes.
type OrderedGroup struct {
	Namespace     string `json:"namespace"`
	Name          string `json:"name"`
	UID           string `json:"uid" check:"token"`
	Priority      int32  `json:"priority"`
	SchedulerName string `json:"schedulerName"`
	MustPlace     int64  `json:"mustPlace" check:"count<=5000"`
	MinCount      int64  `json:"minCount,omitempty" check:"count<=5000"`
}

// OrderMember is a member of the group with the node that it is nominated to. NodeUID is of that node, where known.
type OrderMember struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node"`
	NodeUID   string `json:"nodeUid,omitempty"`
}

// EvictionOrder is a committed decision to evict. One of kind group has Group and Members in place of Preemptor and Node.
type EvictionOrder struct {
	OrderID            string              `json:"orderId" check:"token"`
	Kind               string              `json:"kind" check:"pod|quota|group"`
	ClusterUID         string              `json:"clusterUid"`
	Fence              Fence               `json:"fence"`
	Writer             string              `json:"writer"`
	CreatedAt          Time                `json:"createdAt"`
	NotAfter           Time                `json:"notAfter"`
	Preemptor          *Preemptor          `json:"preemptor,omitempty"`
	Queue              string              `json:"queue,omitempty"`
	Node               string              `json:"node,omitempty"`
	NodeUID            string              `json:"nodeUid,omitempty"`
	DecisionID         string              `json:"decisionId,omitempty"`
	Victims            []Victim            `json:"victims,omitempty"`
	Awaited            []Awaited           `json:"awaited,omitempty"`
	NominationsToClear []NominationToClear `json:"nominationsToClear,omitempty" check:"<=1000"`
	PDBViolations      int                 `json:"pdbViolations,omitempty"`
	Group              *OrderedGroup       `json:"group,omitempty"`
	Members            []OrderMember       `json:"members,omitempty" check:"<=5000"`
}

// MostNominations is how many nominations an order may clear; those beyond are left to their schedulers.
const MostNominations = 1000

// NameOnce leaves each pod in each list of an order once, and as many nominations as it may clear: evictors refuse an
// order that names a pod twice.
func (o *EvictionOrder) NameOnce() {
	o.Victims = once(o.Victims, func(v Victim) string { return v.UID })
	o.Awaited = once(o.Awaited, func(a Awaited) string { return a.UID })
	o.NominationsToClear = once(o.NominationsToClear, func(n NominationToClear) string { return n.UID })
	o.NominationsToClear = o.NominationsToClear[:min(len(o.NominationsToClear), MostNominations)]
}

// once returns a list without the elements whose UID an earlier one has.
func once[T any](list []T, uid func(T) string) []T {
	seen := make(map[string]struct{}, len(list))
	return slices.DeleteFunc(list, func(one T) bool {
		_, twice := seen[uid(one)]
		seen[uid(one)] = struct{}{}
		return twice
	})
}

// PreemptorUID is of the pod or PodGroup that room is made for; empty for a quota order.
func (o *EvictionOrder) PreemptorUID() string {
	switch {
	case o.Kind == KindGroup && o.Group != nil:
		return o.Group.UID
	case o.Kind != KindGroup && o.Preemptor != nil:
		return o.Preemptor.UID
	}
	return ""
}

// VictimOutcome is what became of one victim.
type VictimOutcome struct {
	Namespace          string `json:"namespace"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Result             string `json:"result" check:"deleted|terminating|gone|spared|failed|notAttempted"`
	Reason             string `json:"reason,omitempty"`
	Message            string `json:"message,omitempty"`
	Attempts           int    `json:"attempts,omitempty"`
	GracePeriodSeconds int64  `json:"gracePeriodSeconds,omitempty"`
	DeletedAt          *Time  `json:"deletedAt,omitempty"`
}

// Rollback is what a failed order undid in the API; NominationsReverted are the members (UIDs) of an order of kind group.
type Rollback struct {
	NominationReverted  bool     `json:"nominationReverted,omitempty"`
	ConditionsCleared   []string `json:"conditionsCleared,omitempty"`
	NominationsReverted []string `json:"nominationsReverted,omitempty"`
}

// Outcome is the one end of an order, written last. PreemptorUID is of the pod, or of the PodGroup, whose have no Node.
type Outcome struct {
	OrderID            string          `json:"orderId" check:"token"`
	Kind               string          `json:"kind" check:"pod|quota|group"`
	ClusterUID         string          `json:"clusterUid"`
	Epoch              int64           `json:"epoch"`
	Result             string          `json:"result" check:"succeeded|failed|expired|refused|cancelled"`
	Evictor            string          `json:"evictor"`
	StartedAt          Time            `json:"startedAt"`
	FinishedAt         Time            `json:"finishedAt"`
	PreemptorUID       string          `json:"preemptorUid,omitempty"`
	Node               string          `json:"node,omitempty"`
	Queue              string          `json:"queue,omitempty"`
	Reason             string          `json:"reason,omitempty"`
	Message            string          `json:"message,omitempty"`
	RetryAt            *Time           `json:"retryAt,omitempty"`
	Room               int64           `json:"room,omitempty" check:"count"`
	Deliveries         int             `json:"deliveries,omitempty"`
	Victims            []VictimOutcome `json:"victims,omitempty"`
	NominationsCleared []string        `json:"nominationsCleared,omitempty"`
	Rollback           *Rollback       `json:"rollback,omitempty"`
}

// Limits are bounds of the policy, each nil where there is none.
type Limits struct {
	VictimsPerOrder *int64 `json:"victimsPerOrder,omitempty" check:"count"`
	OrdersInFlight  *int64 `json:"ordersInFlight,omitempty" check:"count"`
}

// QueueLimit is a queue of the tree. Max is by resource, in milli-CPU, bytes and units; what is not in it
// has no limit. Namespaces may use the queue; none listed means all of them. Guaranteed is by resource as Max:
// no preemption for a pod outside the queue takes it below.
type QueueLimit struct {
	Path       string           `json:"path"`
	Max        map[string]int64 `json:"max,omitempty" check:"count"`
	Namespaces []string         `json:"namespaces,omitempty"`
	Guaranteed map[string]int64 `json:"guaranteed,omitempty" check:"count"`
}

// Rules are what the policy says of victims, so that it also holds for preemption without a plan. In
// NeverEvictNamespaces and HardBudgetNamespaces "*" means every namespace. WhenUnplanned says what a scheduler
// does where it gets no plan; absent: WhenUnplannedFallback. GroupPreemptors says the same of pods of a gang.
type Rules struct {
	ProtectedNamespaces  []string `json:"protectedNamespaces,omitempty"`
	MinimumPriority      *int32   `json:"minimumPriority,omitempty"`
	NeverEvictNamespaces []string `json:"neverEvictNamespaces,omitempty"`
	HardBudgetNamespaces []string `json:"hardBudgetNamespaces,omitempty"`
	WhenUnplanned        string   `json:"whenUnplanned,omitempty" check:"fallback|hold"`
	GroupPreemptors      string   `json:"groupPreemptors,omitempty" check:"upstream|hold"`
}

// SettledQuota is a queue whose quota has nothing left to enforce: no timer and no process runs for it on these
// terms. It is the planner's own memory.
type SettledQuota struct {
	Path              string           `json:"path"`
	Max               map[string]int64 `json:"max" check:"count"`
	DelayMicroseconds int64            `json:"delayMicroseconds" check:"count"`
	Mode              string           `json:"mode" check:"off|observe|enforce"`
}

// EnforcedQuota is a queue whose process had not ended, with the maximum that it began with: the planner's own memory.
type EnforcedQuota struct {
	Path string           `json:"path"`
	Max  map[string]int64 `json:"max" check:"count"`
	Need map[string]int64 `json:"need,omitempty" check:"count"`
}

// ControlState is what the leading planner tells plugin and evictor: how far to go, and within which
// limits. Queues is the whole tree, parents before children; without QueuesRevision there is no queue
// configuration, and so no gate. Without Rules it is not known what the policy says of victims.
// ExemptNamespaces are those whose pods are counted in their queues and never held by them; where there are
// none the plugin's argument holds. Pods is about how many are bound, for the evictors.
type ControlState struct {
	Revision         int64             `json:"revision"`
	Mode             string            `json:"mode" check:"off|observe|enforce"`
	ClusterUID       string            `json:"clusterUid"`
	PolicyRevision   string            `json:"policyRevision,omitempty"`
	NamespaceModes   map[string]string `json:"namespaceModes,omitempty" check:"off|observe|enforce"`
	Limits           *Limits           `json:"limits,omitempty"`
	QueuesRevision   string            `json:"queuesRevision,omitempty"`
	Queues           []QueueLimit      `json:"queues,omitempty"`
	Rules            *Rules            `json:"rules,omitempty"`
	ExemptNamespaces []string          `json:"exemptNamespaces,omitempty"`
	Settled          []SettledQuota    `json:"settled,omitempty"`
	Enforcing        []EnforcedQuota   `json:"enforcing,omitempty"`
	Pods             int64             `json:"pods,omitempty" check:"count"`
}

// ComponentStatus is what every component answers when it is asked how it is. Mode and NamespaceModes are in
// force in it, after its own argument and all that it was told; Revision and PolicyRevision are of the control
// state in force, Trouble says what stands in the way of its work. Kubernetes is the minor version of kube-scheduler that
// a scheduler is, QueueGates are the names of its profiles whose pods the queue gate holds.
type ComponentStatus struct {
	APIVersion         string            `json:"apiVersion"`
	Component          string            `json:"component" check:"planner|evictor|scheduler|nominator|shadow"`
	Identity           string            `json:"identity"`
	Version            string            `json:"version"`
	At                 Time              `json:"at"`
	Mode               string            `json:"mode" check:"off|observe|enforce"`
	OwnMode            string            `json:"ownMode" check:"off|observe|enforce"`
	ClusterUID         string            `json:"clusterUid,omitempty"`
	NamespaceModes     map[string]string `json:"namespaceModes,omitempty" check:"off|observe|enforce"`
	Revision           int64             `json:"revision,omitempty"`
	PolicyRevision     string            `json:"policyRevision,omitempty"`
	ToldPolicyRevision string            `json:"toldPolicyRevision,omitempty"`
	QueuesRevision     string            `json:"queuesRevision,omitempty"`
	Leading            bool              `json:"leading,omitempty"`
	Trouble            string            `json:"trouble,omitempty"`
	Brake              string            `json:"brake,omitempty"`
	Caps               string            `json:"caps,omitempty"`
	Breaker            string            `json:"breaker,omitempty"`
	Signatures         string            `json:"signatures,omitempty"`
	Kubernetes         string            `json:"kubernetes,omitempty"`
	Loops              string            `json:"loops,omitempty"`
	QueueGates         []string          `json:"queueGates,omitempty"`
}

// Spared is a pod of lower priority that a rule keeps from being a victim.
type Spared struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Priority  int32  `json:"priority"`
	Rule      string `json:"rule"`
	Detail    string `json:"detail"`
	Until     *Time  `json:"until,omitempty"`
}

// NearNode is a node of a refusal that removing pods almost helps.
type NearNode struct {
	Node        string           `json:"node"`
	Missing     map[string]int64 `json:"missing,omitempty"`
	Spared      []Spared         `json:"spared,omitempty"`
	SparedTotal int              `json:"sparedTotal,omitempty"`
}

// RankedCandidate is a candidate in a decision record, with the numbers that ranked it.
type RankedCandidate struct {
	Node            string    `json:"node"`
	Victims         []Victim  `json:"victims,omitempty"`
	Awaited         []Awaited `json:"awaited,omitempty"`
	PDBViolations   int       `json:"pdbViolations,omitempty"`
	HighestPriority int64     `json:"highestPriority,omitempty"`
	PrioritySum     int64     `json:"prioritySum,omitempty"`
	LatestStart     *Time     `json:"latestStart,omitempty"`
	DecidedBy       string    `json:"decidedBy,omitempty"`
	Spared          []Spared  `json:"spared,omitempty"`
	SparedTotal     int       `json:"sparedTotal,omitempty"`
}

// QueueShare is how much of a quota's need a leaf below the queue was to give, by resource.
type QueueShare struct {
	Queue   string           `json:"queue"`
	Amounts map[string]int64 `json:"amounts,omitempty"`
}

// Obstacle is what kept pods from being evicted: a constant, and a sentence with the numbers.
type Obstacle struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// QuotaDecision is what enforcing a lowered quota comes to. Amounts are by resource, in milli-CPU, bytes and units.
type QuotaDecision struct {
	Result  string           `json:"result" check:"notNeeded|success|bestEffort|unsuccessful"`
	Usage   map[string]int64 `json:"usage,omitempty"`
	Max     map[string]int64 `json:"max,omitempty"`
	Need    map[string]int64 `json:"need,omitempty"`
	Shares  []QueueShare     `json:"shares,omitempty"`
	Freed   map[string]int64 `json:"freed,omitempty"`
	Short   map[string]int64 `json:"short,omitempty"`
	Blocked []Obstacle       `json:"blocked,omitempty"`
}

// DecisionRecord is one plan or refusal, explained.
type DecisionRecord struct {
	DecisionID               string            `json:"decisionId" check:"token"`
	RequestID                string            `json:"requestId"`
	Kind                     string            `json:"kind" check:"pod|quota|group"`
	ClusterUID               string            `json:"clusterUid"`
	Planner                  string            `json:"planner"`
	At                       Time              `json:"at"`
	Mode                     string            `json:"mode" check:"off|observe|enforce"`
	Status                   string            `json:"status" check:"candidates|refused|notSynced"`
	SnapshotRevision         int64             `json:"snapshotRevision"`
	PolicyRevision           string            `json:"policyRevision,omitempty"`
	Preemptor                *Preemptor        `json:"preemptor,omitempty"`
	Queue                    string            `json:"queue,omitempty"`
	NodesTotal               int               `json:"nodesTotal,omitempty"`
	NodesPotential           int               `json:"nodesPotential,omitempty"`
	CandidatesTotal          int               `json:"candidatesTotal,omitempty"`
	UnmodelledTotal          int               `json:"unmodelledTotal,omitempty"`
	NominatedNode            string            `json:"nominatedNode,omitempty"`
	Victims                  []Victim          `json:"victims,omitempty"`
	PDBViolations            int               `json:"pdbViolations,omitempty"`
	Candidates               []RankedCandidate `json:"candidates,omitempty"`
	Diagnosis                *Refusal          `json:"diagnosis,omitempty"`
	SparedByRule             map[string]int    `json:"sparedByRule,omitempty"`
	Nearest                  []NearNode        `json:"nearest,omitempty"`
	PlanDurationMicroseconds int64             `json:"planDurationMicroseconds,omitempty"`
	Recording                string            `json:"recording,omitempty"`
	Ahead                    bool              `json:"ahead,omitempty"`
	Quota                    *QuotaDecision    `json:"quota,omitempty"`
	LeftToVerification       []string          `json:"leftToVerification,omitempty"`
	Group                    *OrderedGroup     `json:"group,omitempty"`
	GroupPlan                *GroupDecision    `json:"groupPlan,omitempty"`
}

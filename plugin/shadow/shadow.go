// Package shadow answers plan requests of those who have no filters to ask: a scheduler that schedules nothing verifies the planner's answers
// with its own.
package shadow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/telemetry"
	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/verify"
	"makeway.dev/makeway/plugin/wire"
)

// pluginName is what the framework knows the plugin by that asks.
const pluginName = "MakeWay"

// Reasons of a shadow's own refusals. The first and the last are the planner's too.
const (
	ReasonRoomIsThere   = "RoomIsThere"
	ReasonFiltersReject = "FiltersReject"
	ReasonNotVerified   = "NotVerified"
	ReasonTooLate       = "TooLate"
)

// maxShadowTimeout bounds how long one question may take, whatever it says.
const maxShadowTimeout = 5 * time.Second

// shadowGroup shares the questions out among the replicas of a shadow.
const shadowGroup = "shadow"

// Shadow answers plan requests of those who have no filters to ask: it runs the scheduler's own ones over its snapshot,
// asks the planner about the nodes that removing pods may help, and verifies the answer as PostFilter does. It schedules
// no pod, nominates none and writes no order.
type Shadow struct {
	Identity string
	Planner  *ask.Client
	Denied   func() string // by NATS
	Filters  framework.Framework
	args     ask.ProfileArgs
	// Refresh brings the snapshot up to date that the filters look at.
	Refresh    func() error
	Pods       corelisters.PodLister
	Namespaces corelisters.NamespaceLister
	Synced     atomic.Bool
	mu         sync.Mutex // one question at a time: there is one snapshot
}

// New makes the shadow of one profile, which connects to NATS as options say; profileArgs are the arguments that the scheduler builds
// its profiles with. It answers until the context ends, how it is from the beginning, and questions from when synced returns nil: the
// scheduler's caches have everything then.
func New(ctx context.Context, options natsbus.Options, subjects wire.Subjects, filters framework.Framework, profileArgs ask.ProfileArgs, refresh func() error, synced func(context.Context) error) *Shadow {
	telemetry.Register()
	core, identity := filters.SharedInformerFactory().Core().V1(), natsbus.NewIdentity()
	options.Name, options.Inbox = "makeway-shadow "+identity, wire.ShadowInbox
	bus := natsbus.Connect(ctx, options)
	shadow := &Shadow{
		Identity: identity, Planner: &ask.Client{Bus: bus, Subjects: subjects, Pods: ask.NewBreaker(clock.RealClock{}, nil)}, Denied: bus.Denied,
		Filters: filters, args: profileArgs, Refresh: refresh, Pods: core.Pods().Lister(), Namespaces: core.Namespaces().Lister(),
	}
	goroutines.KeepRunning(ctx, "status", func(ctx context.Context) {
		bus.Serve(ctx, subjects.Status(), "", func([]byte) ([]byte, error) { return wire.Encode(shadow.Status()) })
	})
	goroutines.KeepRunning(ctx, "status", func(ctx context.Context) {
		if synced(ctx) != nil {
			return // it ends
		}
		shadow.Synced.Store(true)
		answer := func(question []byte) ([]byte, error) { return shadow.Answer(ctx, question) }
		bus.Serve(ctx, subjects.Verify(), shadowGroup, answer)
	})
	return shadow
}

// Status is what it answers when it is asked how it is. No mode holds it back: whoever asks it for plans keeps to that.
func (s *Shadow) Status() *wire.ComponentStatus {
	status := &wire.ComponentStatus{
		APIVersion: wire.APIVersion, Component: "shadow", Identity: s.Identity, Version: wire.Version, At: wire.At(time.Now()),
		Mode: wire.ModeEnforce, OwnMode: wire.ModeEnforce, ClusterUID: s.clusterUID(), Trouble: s.Denied(),
		Kubernetes: version.DefaultKubeBinaryVersion,
	}
	if !s.Synced.Load() {
		status.Trouble = "it has not read the cluster yet"
	}
	return status
}

// clusterUID is the UID of namespace kube-system; empty before it is known.
func (s *Shadow) clusterUID() string {
	namespace, err := s.Namespaces.Get(metav1.NamespaceSystem)
	if err != nil {
		return ""
	}
	return string(namespace.UID)
}

// Answer is the reply to one question, as it goes over the wire.
func (s *Shadow) Answer(ctx context.Context, question []byte) ([]byte, error) {
	request, err := wire.DecodeVersioned[wire.PlanRequest](question)
	if err != nil {
		return nil, err
	}
	timeout := min(time.Duration(request.TimeoutMilliseconds)*time.Millisecond, maxShadowTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := s.plan(ctx, request)
	if err != nil {
		klog.FromContext(ctx).Info("not_verified", "request_id", request.RequestID, "reason", err.Error())
		reason := ReasonNotVerified
		if ctx.Err() != nil {
			reason = ReasonTooLate
		}
		reply = s.refuse(request, wire.StatusNotSynced, reason, err.Error())
	}
	return wire.Encode(reply)
}

// plan is the planner's answer with the candidates that stand, best first.
func (s *Shadow) plan(ctx context.Context, request *wire.PlanRequest) (*wire.PlanReply, error) {
	if own := s.clusterUID(); own != request.ClusterUID {
		return nil, fmt.Errorf("this shadow is of cluster %s, and the question of %s: clusters that share a NATS need a subject prefix each", own, request.ClusterUID)
	}
	if request.Group != nil || len(request.Classes) != 1 {
		return nil, errors.New("a shadow verifies plans for one pod")
	}
	pod := &v1.Pod{}
	if err := json.Unmarshal(request.Classes[0].Pod, pod); err != nil {
		return nil, fmt.Errorf("the pod: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Refresh(); err != nil {
		return nil, fmt.Errorf("the snapshot: %w", err)
	}
	s.Filters.SetPodNominator(nominationsOf(s.Pods, request.Nominations))
	state := framework.NewCycleState()
	chosen, all, refusal, err := filterAll(ctx, s.Filters, state, pod)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return s.refuse(request, wire.StatusRefused, refusal.Reason, refusal.Message), nil
	}
	if len(chosen) == 0 {
		return s.refuse(request, wire.StatusRefused, ReasonFiltersReject, "removing pods helps on no node, say the scheduler's own filters"), nil
	}
	v := &verify.Verifier{Handle: s.Filters, State: state, Pod: pod, Now: time.Now(), Remover: removedBy}
	return s.verified(ctx, request, v, chosen, all)
}

// verified asks the planner about the chosen of all nodes until one of its candidates passes. Where none does, the others are asked for, in
// pieces that grow: the planner answers with the best by its columns, and what the filters object to may be on all of these.
func (s *Shadow) verified(ctx context.Context, request *wire.PlanRequest, v *verify.Verifier, chosen, all []fwk.NodeInfo) (*wire.PlanReply, error) {
	asked, failed := *request, map[string]verify.Failure{}
	asked.Profile = ask.ProfileOf(s.Filters, s.args)
	asked.Profile.Name = request.Profile.Name
	for len(chosen) > 0 {
		asked.Classes = []wire.MemberClass{{Pod: request.Classes[0].Pod, Count: 1, Nodes: ask.SelectNodes(all, chosen)}}
		exchange, err := s.Planner.Plan(&asked)
		if err != nil {
			return nil, err
		}
		reply, err := exchange(ctx)
		if err != nil {
			return nil, err
		}
		if len(reply.Candidates)+len(reply.Unmodelled) == 0 {
			if len(failed) == 0 || reply.Status == wire.StatusNotSynced {
				return reply, nil
			}
			break // by its columns no other node is of use
		}
		// All of them: who asks may leave out nodes on which its last orders failed.
		passed, why := v.Verify(ctx, reply, len(chosen), true)
		if len(passed) > 0 {
			verified := *reply
			verified.Candidates, verified.Unmodelled, verified.UnmodelledTotal, verified.Sample = asCandidates(passed, reply, int(request.MaxCandidates)), nil, 0, nil
			return &verified, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("not verified in time: %w", ctx.Err())
		}
		known := len(failed)
		if maps.Copy(failed, why); len(failed) == known {
			break // the planner names what it was asked to leave out
		}
		chosen = slices.DeleteFunc(chosen, func(node fwk.NodeInfo) bool { _, ok := failed[node.Node().Name]; return ok })
		asked.MaxCandidates = int64(ask.NextPiece(max(int(asked.MaxCandidates), 1), int(request.MaxCandidates)))
	}
	return s.refuse(request, wire.StatusRefused, ReasonFiltersReject, "no candidate passes the scheduler's own filters: "+verify.Summary(failed)), nil
}

// filterAll runs the filters of a fresh cycle over all nodes: which of them removing pods may help. The refusal says that
// none does, or that one needs no help. A filter that has failed says nothing of its node.
func filterAll(ctx context.Context, filters framework.Framework, state fwk.CycleState, pod *v1.Pod) (chosen, all []fwk.NodeInfo, refusal *wire.Refusal, err error) {
	all, err = filters.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, nil, nil, err
	}
	narrowed, status, _ := filters.RunPreFilterPlugins(ctx, state, pod)
	if status.IsRejected() {
		return nil, nil, &wire.Refusal{Reason: ReasonFiltersReject, Message: status.Message()}, nil
	}
	if !status.IsSuccess() {
		return nil, nil, nil, fmt.Errorf("the filters: %w", status.AsError())
	}
	answers := make([]*fwk.Status, len(all))
	filters.Parallelizer().Until(ctx, len(all), func(i int) {
		if !narrowed.AllNodes() && !narrowed.NodeNames.Has(all[i].Node().Name) {
			answers[i] = fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
			return
		}
		answers[i] = filters.RunFilterPluginsWithNominatedPods(ctx, state, pod, all[i])
	}, pluginName)
	if ctx.Err() != nil {
		return nil, nil, nil, ctx.Err()
	}
	for i, answer := range answers {
		switch {
		case answer.Code() == fwk.Error:
			err = cmp.Or(err, fmt.Errorf("the filters of node %s: %w", all[i].Node().Name, answer.AsError()))
		case answer.IsSuccess():
			message := fmt.Sprintf("the scheduler's own filters take pod %s/%s on node %s", pod.Namespace, pod.Name, all[i].Node().Name)
			return nil, nil, &wire.Refusal{Reason: ReasonRoomIsThere, Message: message}, nil
		case answer.Code() == fwk.Unschedulable:
			chosen = append(chosen, all[i])
		}
	}
	if len(chosen) > 0 {
		err = nil // the others may do
	}
	return chosen, all, nil, err
}

func (s *Shadow) refuse(request *wire.PlanRequest, status, reason, message string) *wire.PlanReply {
	return &wire.PlanReply{
		APIVersion: wire.APIVersion, RequestID: request.RequestID, Planner: "shadow/" + s.Identity, Status: status,
		Refusal: &wire.Refusal{Reason: reason, Message: wire.Beginning(message, wire.MostOfMessage)},
	}
}

// removedBy has the planner believed which order removes a pod: it stores all of them, and looks again before it stores the next.
func removedBy(orderID string, _ types.UID) string { return orderID }

// asCandidates writes what stands as a planner would: what may be removed, in its order, with the victims marked.
func asCandidates(passed []*verify.Candidate, reply *wire.PlanReply, most int) []wire.Candidate {
	planned := map[string]wire.Candidate{}
	for _, candidate := range append(append([]wire.Candidate{}, reply.Unmodelled...), reply.Candidates...) {
		planned[candidate.Node] = candidate
	}
	var candidates []wire.Candidate
	for _, found := range passed[:min(len(passed), max(most, 0))] {
		goes := map[string]bool{}
		violations := 0
		for _, one := range found.Victims {
			goes[string(one.Pod.UID)] = true
			if one.Violating {
				violations++
			}
		}
		candidate := planned[found.Node]
		removable := make([]wire.Removable, 0, len(candidate.Removable))
		for _, one := range candidate.Removable {
			one.Victim = goes[one.UID]
			removable = append(removable, one)
		}
		var awaited []wire.Awaited
		for _, one := range found.Awaited {
			awaited = append(awaited, one.OnTheWire())
		}
		candidate.Removable, candidate.Awaited, candidate.PDBViolations = removable, awaited, int64(violations)
		candidates = append(candidates, candidate)
	}
	return candidates
}

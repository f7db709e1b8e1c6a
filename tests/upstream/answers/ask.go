package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	kubeschedulerconfigv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// leftOut are the plugins of the default profile whose objects a random cluster does not have: volumes are
// counted by CSINodes, devices by DRA. The planner models none of them; the plugin's verification asks them.
var leftOut = []string{names.NodeVolumeLimits, names.DynamicResources}

// ofVolumes are left out as well where a cluster has no volumes: they refuse a pod whose claims are not bound.
var ofVolumes = []string{names.VolumeBinding, names.VolumeZone}

// sampleShare is the part of the nodes that kube-scheduler looks at by default, in per cent. Its lower
// bound of 100 nodes is left out, so that a small cluster stands for one of a thousand nodes and more.
const sampleShare = 10

// ask gives kube-scheduler's answer. Cost: some milliseconds, and the filters a few times on every node.
func ask(ctx context.Context, c *Case) (*Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newWorld(ctx, c)
	if err != nil {
		return nil, err
	}
	state, fits, potential, err := w.filter(ctx, c.Preemptor)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Fits: fits, Potential: []string{}, Candidates: map[string]Victims{}}
	for _, node := range potential {
		answer.Potential = append(answer.Potential, node.Node().Name)
	}
	if len(potential) == 0 {
		return answer, nil
	}
	if slices.ContainsFunc(c.Pods, isTerminating) {
		return answer, askAsRuled(ctx, c, answer)
	}

	evaluator := w.evaluator
	all, _, err := evaluator.DryRunPreemption(ctx, state, c.Preemptor, potential, c.Budgets, 0, int32(len(potential)))
	if err != nil && !countsSpreadsByOrder(c) {
		return nil, err
	}
	for _, candidate := range all {
		answer.Candidates[candidate.Name()] = victimsOf(candidate)
	}
	answer.Chosen = best(ctx, evaluator, all)

	// The sample begins at a random node and ends with enough candidates.
	offset := rand.New(rand.NewPCG(c.Seed, 1)).Int32N(int32(len(potential)))
	enough := max(1, int32(len(potential)*sampleShare/100))
	some, _, err := evaluator.DryRunPreemption(ctx, state, c.Preemptor, potential, c.Budgets, offset, enough)
	if err != nil && !countsSpreadsByOrder(c) {
		return nil, err
	}
	answer.Sampled = best(ctx, evaluator, some)
	return answer, nil
}

func victimsOf(candidate preemption.Candidate) Victims {
	victims := Victims{Violations: candidate.Victims().NumPDBViolations}
	for _, pod := range candidate.Victims().Pods {
		victims.UIDs = append(victims.UIDs, string(pod.UID))
	}
	return victims
}

// countsSpreadsByOrder reports whether a topology spread may come out differently for the same pods: it follows the two
// domains that hold the least, so that it depends on the order in which pods of a group leave others. A node where all
// pods can stay after all is an error then, and kube-scheduler goes on without it.
func countsSpreadsByOrder(c *Case) bool {
	return slices.Contains(c.Constraints, topologySpread) && slices.Contains(c.Constraints, "pod-groups")
}

// best is any of the equally good.
func best(ctx context.Context, evaluator *preemption.Evaluator, candidates []preemption.Candidate) string {
	if chosen := evaluator.SelectCandidate(ctx, candidates); chosen != nil {
		return chosen.Name()
	}
	return ""
}

// world is a scheduler's framework with the in-tree plugins on a snapshot of one cluster.
type world struct {
	framework framework.Framework
	evaluator *preemption.Evaluator
	snapshot  *internalcache.Snapshot
}

func newWorld(ctx context.Context, c *Case) (*world, error) {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	if err := fill(factory, c); err != nil {
		return nil, err
	}
	var placed []*v1.Pod
	nominated := nominations{}
	for _, pod := range c.Pods {
		switch node := c.Assumed[string(pod.UID)]; {
		case node != "":
			assumed := pod.DeepCopy()
			assumed.Spec.NodeName = node
			placed = append(placed, assumed)
		case pod.Spec.NodeName != "":
			placed = append(placed, pod)
		case pod.Status.NominatedNodeName != "" && pod.UID != c.Preemptor.UID:
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				return nil, err
			}
			nominated[pod.Status.NominatedNodeName] = append(nominated[pod.Status.NominatedNodeName], info)
		}
	}
	without := leftOut
	if len(c.Volumes) == 0 {
		without = append(slices.Clone(leftOut), ofVolumes...)
	}
	profile, err := defaultProfile(without)
	if err != nil {
		return nil, err
	}
	snapshot, ofGroups, err := snapshotOf(ctx, c, placed)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	w := &world{snapshot: snapshot}
	w.framework, err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile, append(ofGroups,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithLogger(klog.FromContext(ctx)),
		frameworkruntime.WithParallelism(1), // so that a sample depends on the seed alone
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithSnapshotSharedLister(w.snapshot),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
	)...)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	if len(c.Volumes) > 0 {
		if err := runVolumes(ctx, client, factory, c); err != nil {
			return nil, err
		}
	}
	if w.evaluator, err = newEvaluator(ctx, w.framework); err != nil {
		return nil, err
	}
	return w, nil
}

// filter runs a scheduling cycle's PreFilter and Filter, and gives the names of nodes that fit, and the nodes that removing
// pods may help, by name.
func (w *world) filter(ctx context.Context, pod *v1.Pod) (fwk.CycleState, []string, []fwk.NodeInfo, error) {
	var fits []string
	state := framework.NewCycleState()
	statuses := framework.NewDefaultNodeToStatus()
	nodes, err := w.snapshot.NodeInfos().List()
	if err != nil {
		return nil, nil, nil, err
	}
	result, status, _ := w.framework.RunPreFilterPlugins(ctx, state, pod)
	switch {
	case !status.IsSuccess() && !status.IsRejected():
		return nil, nil, nil, status.AsError()
	case !status.IsSuccess():
		statuses.SetAbsentNodesStatus(status)
		nodes = nil
	case !result.AllNodes():
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n fwk.NodeInfo) bool { return !result.NodeNames.Has(n.Node().Name) })
	}
	for _, node := range nodes {
		status := w.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
		if status.IsSuccess() {
			fits = append(fits, node.Node().Name)
			continue // absent: a node that fits is none that removing pods would help
		}
		if !status.IsRejected() {
			return nil, nil, nil, status.AsError()
		}
		statuses.Set(node.Node().Name, status)
	}
	potential, err := statuses.NodesForStatusCode(w.snapshot.NodeInfos(), fwk.Unschedulable)
	slices.SortFunc(potential, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	slices.Sort(fits)
	return state, fits, potential, err
}

// defaultProfile is that of a kube-scheduler without any configuration, but for the plugins left out.
func defaultProfile(without []string) (*config.KubeSchedulerProfile, error) {
	kind := kubeschedulerconfigv1.SchemeGroupVersion.WithKind("KubeSchedulerConfiguration")
	configuration := &config.KubeSchedulerConfiguration{}
	if _, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte("{}"), &kind, configuration); err != nil {
		return nil, fmt.Errorf("default configuration: %w", err)
	}
	profile := &configuration.Profiles[0]
	enabled := &profile.Plugins.MultiPoint.Enabled
	*enabled = slices.DeleteFunc(*enabled, func(p config.Plugin) bool { return slices.Contains(without, p.Name) })
	return profile, nil
}

// runVolumes runs the informers of claims and volumes, of which VolumeBinding keeps copies of its own.
func runVolumes(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory, c *Case) error {
	for _, claim := range c.Claims {
		if err := client.Tracker().Add(claim); err != nil {
			return err
		}
	}
	for _, volume := range c.Volumes {
		if err := client.Tracker().Add(volume); err != nil {
			return err
		}
	}
	core := factory.Core().V1()
	for _, informer := range []cache.SharedIndexInformer{core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer()} {
		handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		if err != nil {
			return err
		}
		go informer.RunWithContext(ctx)
		for !handled.HasSynced() {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// fill puts the cluster's objects where listers find them. No informer runs but those of volumes.
func fill(factory informers.SharedInformerFactory, c *Case) error {
	core, disruption := factory.Core().V1(), factory.Policy().V1()
	if err := add(core.Namespaces().Informer(), c.Namespaces); err != nil {
		return err
	}
	if err := add(core.Nodes().Informer(), c.Nodes); err != nil {
		return err
	}
	if err := add(core.Pods().Informer(), c.Pods); err != nil {
		return err
	}
	if err := add(core.PersistentVolumeClaims().Informer(), c.Claims); err != nil {
		return err
	}
	if err := add(core.PersistentVolumes().Informer(), c.Volumes); err != nil {
		return err
	}
	return add[*policy.PodDisruptionBudget](disruption.PodDisruptionBudgets().Informer(), c.Budgets)
}

func add[T any](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return err
		}
	}
	return nil
}

// nominations are the pods nominated to each node. They never change.
type nominations map[string][]fwk.PodInfo

var _ fwk.PodNominator = nominations{}

func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo              { return n[node] }
func (nominations) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominations) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (nominations) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}

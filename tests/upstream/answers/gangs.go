//go:build !kube136

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// watchedDefault is DefaultPreemption under a name that the in-tree registry does not have.
const watchedDefault = "WatchedDefaultPreemption"

// patience is how long a group's attempt may take, victims included.
const patience = 20 * time.Minute

// gangCase is a cluster, and a pod group none of whose members has a node.
type gangCase struct {
	Nodes   []*v1.Node                  `json:"nodes"`
	Pods    []*v1.Pod                   `json:"pods"`
	Group   *schedulingv1beta1.PodGroup `json:"group"`
	Members []*v1.Pod                   `json:"members"`
}

// gangAnswer is what kube-scheduler did in its first attempt to place the group.
type gangAnswer struct {
	// Result is "fits", "preempts" or "refused".
	Result string `json:"result"`
	// Message is that of PodGroupPostFilter.
	Message string `json:"message"`
	// Victims are the pods that DefaultPreemption set out to delete, by UID, sorted.
	Victims []string `json:"victims"`
	// Nominated are the nodes of the members, by name.
	Nominated map[string]string `json:"nominated"`
	// PostFilterSeconds is the time of PodGroupPostFilter, PostFilterCPUSeconds what it took of the cores, and
	// AttemptSeconds the time of the whole attempt.
	PostFilterSeconds    float64 `json:"postFilterSeconds"`
	PostFilterCPUSeconds float64 `json:"postFilterCpuSeconds"`
	AttemptSeconds       float64 `json:"attemptSeconds"`
}

// setGangGates turns on pod groups as they come, without trees of groups and topology.
func setGangGates() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.GenericWorkload): true})
}

// answerGangs answers one case a line.
func answerGangs(in io.Reader, out io.Writer) error {
	if err := setGangGates(); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		c := &gangCase{}
		if err := json.Unmarshal(lines.Bytes(), c); err != nil {
			return fmt.Errorf("decode case: %w", err)
		}
		answer, err := askForGang(context.Background(), c)
		if err != nil {
			return err
		}
		if err := encoder.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// askForGang runs a whole scheduler with the default profile on a client in memory, for one attempt. Nothing of it is
// replaced but what it would write: victims are noted instead of deleted, and no status is patched.
func askForGang(ctx context.Context, c *gangCase) (*gangAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := fake.NewClientset()
	if err := load(client, c); err != nil {
		return nil, err
	}
	profile, err := defaultProfile(nil)
	if err != nil {
		return nil, err
	}
	for i, plugin := range profile.Plugins.MultiPoint.Enabled {
		if plugin.Name == names.DefaultPreemption {
			profile.Plugins.MultiPoint.Enabled[i].Name = watchedDefault
		}
	}
	watched := &watchedPreemption{}
	registry := frameworkruntime.Registry{watchedDefault: watched.init}
	factory := scheduler.NewInformerFactory(client, 0, nil)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	sched, err := scheduler.New(ctx, client, factory, nil, recorder,
		scheduler.WithProfiles(*profile), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	var failed *fwk.Status
	sched.FailureHandler = func(_ context.Context, _ framework.Framework, _ *framework.QueuedPodInfo, status *fwk.Status, _ *fwk.NominatingInfo, _ time.Time) {
		failed = status
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return nil, fmt.Errorf("the cluster was not read: %w", err)
	}
	sched.SchedulingQueue.Run(klog.FromContext(ctx))
	defer sched.SchedulingQueue.Close()

	var began time.Time
	var took time.Duration
	next := sched.NextEntity
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := next(logger)
		began = time.Now()
		return entity, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.ScheduleOne(ctx)
		took = time.Since(began)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, errors.New("the group's attempt did not end in time")
	}
	if !watched.called {
		if failed != nil {
			return nil, fmt.Errorf("the attempt failed before PodGroupPostFilter: %w", failed.AsError())
		}
		return &gangAnswer{Result: "fits", Victims: []string{}, AttemptSeconds: took.Seconds()}, nil
	}
	answer, err := watched.answer(ctx)
	if err != nil {
		return nil, err
	}
	answer.AttemptSeconds = took.Seconds()
	return answer, nil
}

// load puts the cluster where the client finds it, and the group with its members.
func load(client *fake.Clientset, c *gangCase) error {
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Group.Namespace}}
	objects := []runtime.Object{namespace, c.Group}
	for _, node := range c.Nodes {
		objects = append(objects, node)
	}
	for _, pod := range slices.Concat(c.Pods, c.Members) {
		objects = append(objects, pod)
	}
	for _, object := range objects {
		if err := client.Tracker().Add(object); err != nil {
			return err
		}
	}
	return nil
}

// watchedPreemption is DefaultPreemption as it is, with a watch on PodGroupPostFilter.
type watchedPreemption struct {
	*defaultpreemption.DefaultPreemption

	called bool
	took   time.Duration
	cpu    time.Duration
	result *fwk.PodGroupPostFilterResult
	status *fwk.Status

	mu      sync.Mutex
	victims []string
}

var _ fwk.PodGroupPostFilterPlugin = &watchedPreemption{}

// init makes the plugin, with the arguments that it has by default.
func (p *watchedPreemption) init(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}
	plugin, err := defaultpreemption.New(ctx, args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, fmt.Errorf("DefaultPreemption: %w", err)
	}
	plugin.Executor.PreemptPod = p.note
	p.DefaultPreemption = plugin
	return p, nil
}

// Name implements Plugin.
func (*watchedPreemption) Name() string { return watchedDefault }

// PodGroupPostFilter implements PodGroupPostFilterPlugin.
func (p *watchedPreemption) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, schedule fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	began, used := time.Now(), cpuTime()
	p.result, p.status = p.DefaultPreemption.PodGroupPostFilter(ctx, state, group, schedule)
	p.took, p.cpu, p.called = time.Since(began), cpuTime()-used, true
	return p.result, p.status
}

// cpuTime is what this process has taken of the cores.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// note stands in for the deletion of a victim.
func (p *watchedPreemption) note(_ context.Context, _ preemption.Candidate, _ preemption.ExecutorPreemptor, victim *v1.Pod, _ string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.victims = append(p.victims, string(victim.UID))
	return false, nil
}

// answer waits for the victims, which are deleted beside the attempt, and says what came of it.
func (p *watchedPreemption) answer(ctx context.Context) (*gangAnswer, error) {
	answer := &gangAnswer{
		Result: "refused", Message: p.status.Message(), Victims: []string{}, Nominated: map[string]string{},
		PostFilterSeconds: p.took.Seconds(), PostFilterCPUSeconds: p.cpu.Seconds(),
	}
	if p.status.IsRejected() {
		return answer, nil
	}
	if !p.status.IsSuccess() {
		return nil, fmt.Errorf("PodGroupPostFilter: %w", p.status.AsError())
	}
	answer.Result = "preempts"
	for member, info := range p.result.NominatingInfos {
		answer.Nominated[member.Name] = info.NominatedNodeName
	}
	var count int
	if _, err := fmt.Sscanf(answer.Message, "pod group preemption: found a placement for podgroup, preempting %d victims", &count); err != nil {
		return nil, fmt.Errorf("PodGroupPostFilter said %q: %w", answer.Message, err)
	}
	for {
		p.mu.Lock()
		answer.Victims = slices.Clone(p.victims)
		p.mu.Unlock()
		if len(answer.Victims) == count {
			slices.Sort(answer.Victims)
			return answer, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("of %d victims %d were deleted", count, len(answer.Victims))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

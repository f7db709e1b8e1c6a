//go:build !kube136

package schedulerperf

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// preemptorPriority is what scheduler_perf's preemptors have, and no other pods but blockers.
var preemptorPriority = os.Getenv("MAKEWAY_BENCH_PRIORITY")

// metricsEvery is how often the plugin's metrics are read. With them come all others of the process, which are
// many: more often would cost what is measured.
const metricsEvery = 10 * time.Second

// measured is what the driver reads, besides scheduler_perf's own figures. Moments are in seconds since 1970.
type measured struct {
	Planned   []call `json:"planned"`   // PostFilter calls that looked at nodes
	Unplanned []call `json:"unplanned"` // the others
	Groups    []call `json:"groups"`    // PodGroupPostFilter calls
	Nominated int    `json:"nominated"`

	Preemptors tally             `json:"preemptors"`
	Namespaces map[string]*tally `json:"namespaces"` // each operation that creates pods has a namespace of its own
	Victims    int               `json:"victims"`    // pods of lower priority that left their node

	Plugin map[string]float64 `json:"plugin"` // sums and counts of the plugin's metrics
}

// call is when a call returned, and how many seconds it took.
type call [2]float64

// tally is so many pods, when the first was created and the last bound, as the informer shows it.
type tally struct {
	Created int     `json:"created"`
	Bound   int     `json:"bound"`
	First   float64 `json:"first"`
	Last    float64 `json:"last"`
}

func (t *tally) created() {
	if t.Created == 0 {
		t.First = now()
	}
	t.Created++
}

func (t *tally) bound() {
	t.Bound++
	t.Last = now()
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// recorder takes in PostFilter calls and what the pod informer shows.
type recorder struct {
	mu       sync.Mutex
	measured measured
	priority int32 // of preemptors
	profile  *profile
	stop     chan struct{}
	stopped  sync.WaitGroup
}

func newRecorder() (*recorder, error) {
	priority, err := strconv.ParseInt(preemptorPriority, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("priority of the preemptors: %w", err)
	}
	return &recorder{priority: int32(priority), measured: measured{Namespaces: map[string]*tally{}}, profile: newProfile(), stop: make(chan struct{})}, nil
}

// start reads the plugin's metrics again and again: scheduler_perf resets them before any cleanup runs.
func (r *recorder) start() {
	r.stopped.Go(func() {
		for {
			select {
			case <-r.stop:
				return
			case <-time.After(metricsEvery):
				values := pluginMetrics()
				r.mu.Lock()
				if sum(values) >= sum(r.measured.Plugin) {
					r.measured.Plugin = values
				}
				r.mu.Unlock()
			}
		}
	})
}

func sum(values map[string]float64) float64 {
	total := 0.0
	for _, value := range values {
		total += value
	}
	return total
}

func (r *recorder) postFilter(took time.Duration, planned, nominated bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := call{now(), took.Seconds()}
	if planned {
		r.measured.Planned = append(r.measured.Planned, one)
	} else {
		r.measured.Unplanned = append(r.measured.Unplanned, one)
	}
	if nominated {
		r.measured.Nominated++
	}
}

func (r *recorder) podGroupPostFilter(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured.Groups = append(r.measured.Groups, call{now(), took.Seconds()})
}

// follow has the recorder told of pods, by the informer that the scheduler has anyway.
func (r *recorder) follow(handle fwk.Handle) error {
	_, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod, ok := object.(*v1.Pod); ok {
				r.tell(pod, (*tally).created, r.profile.createdOne)
			}
		},
		UpdateFunc: func(before, object any) {
			old, ok := before.(*v1.Pod)
			if pod, isPod := object.(*v1.Pod); ok && isPod && old.Spec.NodeName == "" && pod.Spec.NodeName != "" {
				r.tell(pod, (*tally).bound, r.profile.boundOne)
			}
		},
		DeleteFunc: r.deleted,
	})
	return err
}

// tell has a pod counted, and then the profile told of it. Everybody shares one informer, which shows a pod
// before it is bound.
func (r *recorder) tell(pod *v1.Pod, what, then func(*tally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.measured.Namespaces[pod.Namespace]
	if of == nil {
		of = &tally{}
		r.measured.Namespaces[pod.Namespace] = of
	}
	what(of)
	if corev1helpers.PodPriority(pod) == r.priority && pod.Labels[blocker] == "" {
		what(&r.measured.Preemptors)
	}
	then(of)
}

// blocker labels pods of a preemptor's priority that only take room.
const blocker = "blocker"

func (r *recorder) deleted(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok || pod.Spec.NodeName == "" || corev1helpers.PodPriority(pod) >= r.priority {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured.Victims++
}

// results ends the recorder.
func (r *recorder) results() *measured {
	close(r.stop)
	r.stopped.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.profile.end()
	copied := r.measured
	return &copied
}

// pluginMetrics are the counters of the plugin, and count and sum of its histograms, summed over labels.
func pluginMetrics() map[string]float64 {
	values := map[string]float64{}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return values
	}
	for _, family := range families {
		name := family.GetName()
		if len(name) < len(prefix) || name[:len(prefix)] != prefix {
			continue
		}
		for _, metric := range family.GetMetric() {
			key := name
			for _, label := range metric.GetLabel() {
				key += "/" + label.GetValue()
			}
			switch {
			case metric.GetHistogram() != nil:
				values[key+"/count"] = float64(metric.GetHistogram().GetSampleCount())
				values[key+"/sum"] = metric.GetHistogram().GetSampleSum()
			case metric.GetCounter() != nil:
				values[key] = metric.GetCounter().GetValue()
			}
		}
	}
	return values
}

// prefix of the plugin's metrics.
const prefix = "makeway_"

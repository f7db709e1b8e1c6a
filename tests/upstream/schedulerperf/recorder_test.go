package schedulerperf

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// preemptorPriority is what scheduler_perf's preemptors have; all its other pods have less.
const preemptorPriority = 10

// metricsEvery is how often the plugin's metrics are read. With them come all others of the process, which are
// many: more often would cost what is measured.
const metricsEvery = 10 * time.Second

// measured is what the driver reads, besides scheduler_perf's own figures. Times are in seconds.
type measured struct {
	Planned   []float64 `json:"planned"`   // PostFilter calls that looked at nodes
	Unplanned []float64 `json:"unplanned"` // the others
	Nominated int       `json:"nominated"`

	Preemptors int     `json:"preemptors"` // created
	Bound      int     `json:"bound"`      // of them
	LastBound  float64 `json:"lastBound"`  // from the first one's creation to the last binding
	Victims    int     `json:"victims"`    // pods of lower priority that left their node

	Plugin map[string]float64 `json:"plugin"` // sums and counts of the plugin's metrics
}

// recorder takes in PostFilter calls and what the pod informer shows.
type recorder struct {
	mu       sync.Mutex
	measured measured
	first    time.Time
	unbound  map[string]bool
	stop     chan struct{}
	stopped  sync.WaitGroup
}

func newRecorder() *recorder {
	return &recorder{unbound: map[string]bool{}, stop: make(chan struct{})}
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
	if planned {
		r.measured.Planned = append(r.measured.Planned, took.Seconds())
	} else {
		r.measured.Unplanned = append(r.measured.Unplanned, took.Seconds())
	}
	if nominated {
		r.measured.Nominated++
	}
}

// follow has the recorder told of pods, by the informer that the scheduler has anyway.
func (r *recorder) follow(handle fwk.Handle) error {
	_, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.pod(object) },
		UpdateFunc: func(_, object any) { r.pod(object) },
		DeleteFunc: r.deleted,
	})
	return err
}

func (r *recorder) pod(object any) {
	pod, ok := object.(*v1.Pod)
	if !ok || corev1helpers.PodPriority(pod) < preemptorPriority || pod.Labels[blocker] != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := string(pod.UID)
	if _, known := r.unbound[uid]; !known {
		r.unbound[uid] = true
		r.measured.Preemptors++
		if r.first.IsZero() {
			r.first = time.Now()
		}
	}
	if r.unbound[uid] && pod.Spec.NodeName != "" {
		r.unbound[uid] = false
		r.measured.Bound++
		r.measured.LastBound = time.Since(r.first).Seconds()
	}
}

// blocker labels pods of a preemptor's priority that only take room.
const blocker = "blocker"

func (r *recorder) deleted(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok || pod.Spec.NodeName == "" || corev1helpers.PodPriority(pod) >= preemptorPriority {
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

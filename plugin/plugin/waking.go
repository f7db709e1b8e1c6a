package plugin

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"

	"makeway.dev/makeway/plugin/ask"
	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/informing"
	"makeway.dev/makeway/plugin/memory"
	"makeway.dev/makeway/plugin/wire"
)

// watchDependencies marks refused pods when an object that they depend on changes. The scheduler has an
// informer of PodDisruptionBudgets anyway. That of PriorityClasses is the plugin's own: the scheduler waits
// for those of its factory, so it would not start where it may not list them.
func (e *engine) watchDependencies(ctx context.Context) error {
	budget := func(budget *policyv1.PodDisruptionBudget) {
		e.planner.Seen.Take(ask.ResourceBudgets, budget)
		e.memory.Retries.Changed(memory.KindPDB, budget.Namespace, budget.Name)
	}
	class := func(class *schedulingv1.PriorityClass) {
		e.planner.Seen.Take(ask.ResourcePriorityClasses, class)
		if all, err := e.cluster.classes.List(labels.Everything()); err == nil { // of a cache; it never fails
			e.control.ClassesChanged(all)
		}
		e.memory.Retries.Changed(memory.KindPriorityClass, "", class.Name)
	}
	budgets := e.handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Informer()
	if _, err := informing.Watch(ctx, budgets, func(_, now *policyv1.PodDisruptionBudget) { budget(now) }, budget); err != nil {
		return fmt.Errorf("watch PodDisruptionBudgets: %w", err)
	}
	classes := schedulinginformers.NewPriorityClassInformer(e.handle.ClientSet(), 0, cache.Indexers{})
	if _, err := informing.Watch(ctx, classes, func(_, now *schedulingv1.PriorityClass) { class(now) }, class); err != nil {
		return fmt.Errorf("watch PriorityClasses: %w", err)
	}
	e.cluster.classes, e.cluster.classesSynced = schedulinglisters.NewPriorityClassLister(classes.GetIndexer()), classes.HasSynced
	goroutines.GoRecovered(ctx, "priorityclasses", classes.RunWithContext)
	return nil
}

// runRetries activates refused pods whose time, or object, has come. While the planner does not answer, one
// goes ahead: an attempt costs the scheduler all its filters, and without an answer that is for nothing.
func (e *engine) runRetries(ctx context.Context) {
	ticker := e.clock.NewTicker(memory.RetryTick)
	defer ticker.Stop()
	for {
		take := e.memory.Retries.Due
		select {
		case <-ctx.Done():
			return
		case <-e.memory.Retries.Turns:
			take = e.memory.Retries.DueTurns
		case <-ticker.C():
		}
		for _, ref := range take(e.planner.Pods.Attempts(memory.RetryBurst)) {
			e.activateRetry(ctx, ref)
		}
		refusedGauge.Set(float64(e.memory.Retries.Count()))
	}
}

// activateRetry activates one refused pod.
func (e *engine) activateRetry(ctx context.Context, ref wire.PodRef) {
	defer goroutines.RecoverPanic(ctx, "retry", nil)
	e.activate(ctx, e.pending(ref))
}

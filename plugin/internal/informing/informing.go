// Package informing takes in what informers report.
package informing

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"makeway.dev/makeway/plugin/internal/goroutines"
)

// Watch has an informer report the objects of a type: changed gets each that is there, after what it was before, nil where it was not
// there; gone gets one that is there no more, also where another was made under its name while the watch was broken. Both run on the
// informer's goroutine and may not wait. It returns what reports whether all of a first list have been reported.
func Watch[T metav1.Object](ctx context.Context, informer cache.SharedInformer, changed func(before, now T), gone func(T)) (cache.InformerSynced, error) {
	var none T
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(now any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			changed(none, now.(T))
		},
		UpdateFunc: func(old, now any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			before := old.(T)
			if before.GetUID() != now.(T).GetUID() {
				gone(before)
				before = none
			}
			changed(before, now.(T))
		},
		DeleteFunc: func(last any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			if unknown, ok := last.(cache.DeletedFinalStateUnknown); ok {
				last = unknown.Obj
			}
			gone(last.(T))
		},
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

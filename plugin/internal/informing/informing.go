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
		AddFunc: func(object any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			if now, ok := object.(T); ok {
				changed(none, now)
			}
		},
		UpdateFunc: func(old, object any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			before, okBefore := old.(T)
			now, ok := object.(T)
			if !ok {
				return
			}
			if okBefore && before.GetUID() != now.GetUID() {
				gone(before)
				before = none
			}
			changed(before, now)
		},
		DeleteFunc: func(object any) {
			defer goroutines.RecoverPanic(ctx, "informer", nil)
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if last, ok := object.(T); ok {
				gone(last)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

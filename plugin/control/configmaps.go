package control

import (
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"makeway.dev/makeway/plugin/internal/goroutines"
	"makeway.dev/makeway/plugin/internal/informing"
)

// unreadable is why a ConfigMap cannot be read.
type unreadable struct{ error }

// watchConfigMap follows one ConfigMap: take gets it as it is there, nil where it is not any more. trouble is why it cannot be read, nil
// where it can; a new one is logged. synced reports whether take has been called with what a first list had. The informer is the
// plugin's own: the scheduler waits for those of its factory, so it would not start where it may not list this one.
func watchConfigMap(ctx context.Context, client clientset.Interface, at types.NamespacedName, trouble *atomic.Pointer[unreadable], take func(*v1.ConfigMap)) (synced cache.InformerSynced, err error) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, at.Name).String()
	read := func(ctx context.Context, err error) {
		if err == nil || ctx.Err() != nil {
			trouble.Store(nil)
			return
		}
		why := &unreadable{fmt.Errorf("ConfigMap %s cannot be read: %w", at, err)}
		if before := trouble.Swap(why); before == nil || before.Error() != why.Error() {
			klog.FromContext(ctx).Error(err, "configmap_unreadable", "namespace", at.Namespace, "configmap", at.Name,
				"remedy", "let the scheduler list and watch this ConfigMap, or leave its name empty in the plugin's arguments, for makeway-breaker that of brakeConfigMap")
		}
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			list, err := client.CoreV1().ConfigMaps(at.Namespace).List(ctx, options)
			read(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			watching, err := client.CoreV1().ConfigMaps(at.Namespace).Watch(ctx, options)
			read(ctx, err)
			return watching, err
		},
	}, client), &v1.ConfigMap{}, 0, cache.Indexers{})
	taking := func(_, found *v1.ConfigMap) {
		if found.Name == at.Name {
			take(found)
		}
	}
	synced, err = informing.Watch(ctx, informer, taking, func(gone *v1.ConfigMap) {
		if gone.Name == at.Name {
			take(nil)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch ConfigMap %s: %w", at, err)
	}
	goroutines.GoRecovered(ctx, "watch_configmap", informer.RunWithContext)
	return synced, nil
}

// Package perscheduler keeps what the plugins and profiles of one scheduler share.
package perscheduler

import (
	"context"
	"sync"

	"k8s.io/client-go/informers"
)

// Registry finds what a scheduler's profiles share by its informer factory, which is the same for all of them. The zero value is empty.
// Safe for concurrent use.
type Registry[T any] struct {
	mu sync.Mutex
	of map[informers.SharedInformerFactory]T
}

// Of returns what a scheduler has until the context ends, made where it has nothing yet; existed says that it had. An error of build is
// returned, and nothing is kept.
func (r *Registry[T]) Of(ctx context.Context, factory informers.SharedInformerFactory, build func() (T, error)) (found T, existed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, existed = r.of[factory]; existed {
		return found, true, nil
	}
	if found, err = build(); err != nil {
		return found, false, err
	}
	if r.of == nil {
		r.of = map[informers.SharedInformerFactory]T{}
	}
	r.of[factory] = found
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.of, factory)
	})
	return found, false, nil
}

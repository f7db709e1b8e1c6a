package goroutines

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestALoopThatPanicsRunsAgainAfterAPause(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var runs atomic.Int32
	ended := make(chan time.Time, 1)
	start := time.Now()

	KeepRunning(ctx, "test", func(context.Context) {
		if runs.Add(1) == 1 {
			panic("for a test")
		}
		ended <- time.Now()
	})

	select {
	case at := <-ended:
		if at.Sub(start) < RestartPause {
			t.Errorf("again after %s", at.Sub(start))
		}
	case <-time.After(10 * RestartPause):
		t.Fatal("not again")
	}
	time.Sleep(10 * time.Millisecond)
	if runs.Load() != 2 {
		t.Errorf("%d runs: one that returned is run again", runs.Load())
	}
}

func TestALoopThatPanicsIsNotRunAgainAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var runs atomic.Int32

	KeepRunning(ctx, "test", func(context.Context) {
		runs.Add(1)
		cancel()
		panic("for a test")
	})

	time.Sleep(50 * time.Millisecond)
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

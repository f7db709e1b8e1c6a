//go:build !kube136

// Package schedulerperf runs workloads of kube-scheduler's own benchmark, scheduler_perf, with
// DefaultPreemption or with MakeWay. tests/bench/side_by_side starts it, with everything else it needs, and
// reads what it writes.
package schedulerperf

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	_ "k8s.io/component-base/logs/json/register"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"

	makeway "makeway.dev/makeway/plugin/plugin"
)

// What the driver tells by the environment.
var (
	workload   = os.Getenv("MAKEWAY_BENCH_WORKLOAD")   // a configuration of scheduler_perf
	kubeconfig = os.Getenv("MAKEWAY_BENCH_KUBECONFIG") // written once the API server runs
	goAhead    = os.Getenv("MAKEWAY_BENCH_GO_AHEAD")   // waited for before the workload begins
	results    = os.Getenv("MAKEWAY_BENCH_RESULTS")    // written when it has ended
)

const (
	goAheadPoll    = 50 * time.Millisecond
	goAheadTimeout = 2 * time.Minute
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func BenchmarkPerfScheduling(b *testing.B) {
	if workload == "" {
		b.Skip("run by tests/bench/side_by_side")
	}
	recorder, err := newRecorder()
	if err != nil {
		b.Fatal(err)
	}
	registry := frameworkruntime.Registry{
		makeway.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return newTimedMakeWay(ctx, args, handle, recorder)
		},
		makeway.NominatedSortName: makeway.NewNominatedSort,
		timedDefault: func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return newTimedDefault(ctx, handle, recorder)
		},
	}
	perf.RunBenchmarkPerfScheduling(b, workload, "preemption", registry, perf.WithPrepareFn(func(tCtx ktesting.TContext) error {
		recorder.start()
		tCtx.Cleanup(func() {
			if err := write(recorder.results()); err != nil {
				tCtx.Errorf("write results: %v", err)
			}
		})
		return prepare(tCtx)
	}))
}

// prepare lets the driver start planner and evictor on this API server, and waits until they are ready.
func prepare(tCtx ktesting.TContext) error {
	rest := tCtx.RESTConfig()
	config := clientcmdapi.Config{
		CurrentContext: "bench",
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: "bench"}},
		Clusters: map[string]*clientcmdapi.Cluster{"bench": {
			Server: rest.Host, CertificateAuthority: rest.CAFile, CertificateAuthorityData: rest.CAData,
			TLSServerName: rest.ServerName, InsecureSkipTLSVerify: rest.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"bench": {Token: rest.BearerToken}},
	}
	// In one step, so that nobody reads half of it.
	if err := clientcmd.WriteToFile(config, kubeconfig+".new"); err != nil {
		return err
	}
	if err := os.Rename(kubeconfig+".new", kubeconfig); err != nil {
		return err
	}
	for deadline := time.Now().Add(goAheadTimeout); time.Now().Before(deadline); time.Sleep(goAheadPoll) {
		if _, err := os.Stat(goAhead); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no %s within %s", goAhead, goAheadTimeout)
}

func write(r *measured) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(results, data, 0o600)
}

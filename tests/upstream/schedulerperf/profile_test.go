//go:build !kube136

package schedulerperf

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
)

// What the driver tells by the environment, where it wants a profile.
var (
	profileFile  = os.Getenv("MAKEWAY_BENCH_PROFILE")
	profileAfter = os.Getenv("MAKEWAY_BENCH_PROFILE_AFTER") // so many pods only fill the nodes
	profilePods  = os.Getenv("MAKEWAY_BENCH_PROFILE_PODS")  // so many are measured
)

// profile is taken of the CPU from the first pod's creation that does not only fill the nodes until the measured
// pods are bound: what comes after reads metrics.
type profile struct {
	after, pods int
	created     int
	file        *os.File // while it is taken
	begun       float64
}

func newProfile() *profile {
	after, err := strconv.Atoi(profileAfter)
	pods, other := strconv.Atoi(profilePods)
	if err != nil || other != nil {
		return &profile{}
	}
	return &profile{after: after, pods: pods}
}

// createdOne begins it when the time has come; `of` has the pod counted.
func (p *profile) createdOne(of *tally) {
	p.created++
	if p.pods > 0 && p.file == nil && p.created > p.after {
		p.begun = of.First
		p.begin()
	}
}

// boundOne ends it when the last of a namespace's pods is bound, if they are those that are measured.
func (p *profile) boundOne(of *tally) {
	if p.file != nil && of.Bound >= p.pods && of.First >= p.begun {
		p.end()
	}
}

func (p *profile) begin() {
	file, err := os.Create(profileFile)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no profile:", err)
		p.pods = 0
		return
	}
	p.file = file
}

// end ends it, if it is still being taken.
func (p *profile) end() {
	if p.file == nil {
		return
	}
	pprof.StopCPUProfile()
	_ = p.file.Close()
	*p = profile{}
}

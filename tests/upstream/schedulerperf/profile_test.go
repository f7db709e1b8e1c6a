package schedulerperf

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
)

// What the driver tells by the environment, where it wants a profile.
var (
	profileFile = os.Getenv("MAKEWAY_BENCH_PROFILE")
	profilePods = os.Getenv("MAKEWAY_BENCH_PROFILE_PODS") // how many are measured
)

// profile is taken of the CPU from the first preemptor's creation until the measured pods are bound: what comes
// before fills the nodes, and what comes after reads metrics.
type profile struct {
	pods int
	file *os.File // while it is taken
}

func newProfile() *profile {
	pods, err := strconv.Atoi(profilePods)
	if err != nil {
		return &profile{}
	}
	return &profile{pods: pods}
}

// follow begins or ends it, as pods are created and bound.
func (p *profile) follow(preemptors tally, namespaces map[string]*tally) {
	switch {
	case p.pods == 0 || preemptors.Created == 0:
	case p.file == nil:
		p.begin()
	default:
		for _, of := range namespaces {
			if of.Bound >= p.pods && of.Last >= preemptors.First {
				p.end()
				return
			}
		}
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

// Command answers asks kube-scheduler's own code what DefaultPreemption would do, for random clusters or
// for given ones. It is the other side of the differential test: it knows nothing of makeway.
//
//	answers -first 1 -count 300 -constraints resources,budgets   random clusters, one a seed
//	answers -                                                     a cluster a line on standard input
//	answers -gangs                                                a cluster and a pod group a line: see gangs.go
//
// Each line of its output is a case: a cluster, its preemptor, and the answer. The same seed and
// constraints give the same cluster and, but for the sample, the same answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// longestLine is more than the largest random cluster takes.
const longestLine = 64 << 20

func main() {
	first := flag.Uint64("first", 1, "seed of the first cluster")
	count := flag.Uint64("count", 1, "how many clusters")
	only := flag.String("constraints", "", "kinds of constraints to draw from, separated by commas; default all: "+strings.Join(kinds, ","))
	gangs := flag.Bool("gangs", false, "answer clusters with a pod group, a line of standard input each")
	flag.Parse()
	klog.SetLogger(klog.Logger{}) // plugins log what a cluster's author should know; here it is random
	metrics.Register()
	var err error
	if *gangs {
		err = answerGangs(os.Stdin, os.Stdout)
	} else {
		err = run(*first, *count, *only, flag.Arg(0) == "-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(first, count uint64, only string, given bool) error {
	if err := setGates(); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	// Flushed a case: who sends one cluster waits for its answer before sending the next.
	write := func(c *Case) error { return errors.Join(encoder.Encode(c), out.Flush()) }
	if given {
		return answerEach(os.Stdin, write)
	}
	allowed, err := parseKinds(only)
	if err != nil {
		return err
	}
	for seed := first; seed < first+count; seed++ {
		c, err := randomCase(context.Background(), seed, allowed)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if c, err = asStored(c); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if c.Answer, err = ask(context.Background(), c); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if err := write(c); err != nil {
			return err
		}
	}
	return nil
}

// asStored is a case as it is written and read again: an empty map is none, for example.
func asStored(c *Case) (*Case, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	stored := &Case{}
	return stored, json.Unmarshal(data, stored)
}

// answerEach answers clusters as they come; one that makes no sense to a plugin gets no answer.
func answerEach(in io.Reader, write func(*Case) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		c := &Case{}
		if err := json.Unmarshal(lines.Bytes(), c); err != nil {
			return fmt.Errorf("decode case: %w", err)
		}
		var err error
		if c.Answer, err = ask(context.Background(), c); err != nil {
			c.Answer = nil // a cluster that cannot be
			fmt.Fprintln(os.Stderr, "no answer:", err)
		}
		if err := write(c); err != nil {
			return err
		}
	}
	return lines.Err()
}

//go:build failpoints

package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// hits counts how often each point was reached since it was armed.
var hits = struct {
	sync.Mutex
	of map[string]int
}{of: map[string]int{}}

// failpoint does what a point is armed with: the directory that MAKEWAY_FAILPOINTS names may have a file
// of the point's name, with the line "ACTION HIT SECONDS" (kill, stop or delay; at which hit; how long a
// delay is). It fires once: the file is moved to fired/, with the pid in it, before anything is done.
func failpoint(name string) {
	directory := os.Getenv("MAKEWAY_FAILPOINTS")
	if directory == "" {
		return
	}
	action, seconds := takeFailpoint(directory, name)
	switch action {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing after the point is done while the signal is on its way
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "delay":
		time.Sleep(time.Duration(seconds * float64(time.Second)))
	}
}

// takeFailpoint counts a hit; where the point fires, it disarms it and gives the action and its seconds.
func takeFailpoint(directory, name string) (action string, seconds float64) {
	hits.Lock()
	defer hits.Unlock()
	armed := filepath.Join(directory, name)
	line, err := os.ReadFile(armed)
	if err != nil {
		delete(hits.of, name)
		return "", 0
	}
	var hit int
	if _, err := fmt.Sscan(string(line), &action, &hit, &seconds); err != nil {
		return "", 0
	}
	if hits.of[name]++; hits.of[name] < hit {
		return "", 0
	}
	fired := filepath.Join(directory, "fired", name)
	if os.Rename(armed, fired) != nil {
		return "", 0 // another process has reached the point first
	}
	_ = os.WriteFile(fired, strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600)
	return action, seconds
}

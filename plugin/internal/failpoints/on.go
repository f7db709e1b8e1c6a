//go:build failpoints

package failpoints

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// At does what a point is armed with: the directory that MAKEWAY_FAILPOINTS names may have a file
// of the point's name, whose first word is kill, stop or hold. It fires once: the file is moved to fired/,
// with the pid in it, before anything is done. A hold ends when that file is removed.
func At(name string) {
	directory := os.Getenv("MAKEWAY_FAILPOINTS")
	if directory == "" {
		return
	}
	fired := filepath.Join(directory, "fired", name)
	switch takeFailpoint(filepath.Join(directory, name), fired) {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing after the point is done while the signal is on its way
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "hold":
		for _, err := os.Stat(fired); err == nil; _, err = os.Stat(fired) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// takeFailpoint disarms an armed point and returns its action; empty where it is not armed.
func takeFailpoint(armed, fired string) string {
	line, err := os.ReadFile(armed)
	taken := filepath.Join(filepath.Dir(fired), "."+filepath.Base(fired))
	if err != nil || os.Rename(armed, taken) != nil {
		return "" // not armed, or another process has reached the point first
	}
	_ = os.WriteFile(taken, strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600)
	_ = os.Rename(taken, fired) // a reader finds the pid there, never the line
	action, _, _ := strings.Cut(string(line), " ")
	return action
}

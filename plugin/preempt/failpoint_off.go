//go:build !failpoints

package preempt

// failpoint does nothing: this binary was not built for tests of crashes.
func failpoint(string) {}

//go:build !failpoints

package bridge

// failpoint does nothing: this binary was not built for tests of crashes.
func failpoint(string) {}

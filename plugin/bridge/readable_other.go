//go:build !unix

package bridge

import "time"

// awaitReadable does nothing: reads wait in the network poller alone.
func awaitReadable(uintptr, time.Duration) {}

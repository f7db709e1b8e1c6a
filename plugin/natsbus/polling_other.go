//go:build !unix

package natsbus

import "time"

// awaitReadable does nothing: reads wait in the network poller alone.
func awaitReadable(uintptr, time.Duration) {}

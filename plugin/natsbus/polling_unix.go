//go:build unix

package natsbus

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// awaitReadable waits in poll(2) until a descriptor has data or is closed by the other side, or until the time is over.
func awaitReadable(descriptor uintptr, atMost time.Duration) {
	until := time.Now().Add(atMost)
	for {
		milliseconds := int((time.Until(until) + time.Millisecond - 1) / time.Millisecond)
		if milliseconds <= 0 {
			return
		}
		// A signal, such as those that Go preempts with, ends the call early.
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, milliseconds); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

package natsbus

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
)

// NewIdentity names this process: hostname_pid_random.
func NewIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s_%d_%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}

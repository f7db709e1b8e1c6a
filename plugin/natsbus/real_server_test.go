package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// realServers names a file with what TestRealServersAdmitAndRefuse tries; tests/contract writes it, and runs the servers.
const realServers = "MAKEWAY_TEST_NATS_SERVERS"

func TestRealServersAdmitAndRefuse(t *testing.T) {
	file := os.Getenv(realServers)
	if file == "" {
		t.Skip(realServers + " names no servers")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tried map[string]struct {
		Options Options
		Refused string // what the log says; empty where it connects
	}
	if err := json.Unmarshal(text, &tried); err != nil {
		t.Fatal(err)
	}
	for name, one := range tried {
		t.Run(name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			logged := logger.GetSink().(ktesting.Underlier).GetBuffer()
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
			defer cancel()
			one.Options.Name = "test"
			bus := Connect(ctx, one.Options)
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				// A server answers for a subject without listeners, once it has let the client in.
				admitted := errors.Is(asks(t, bus, nil), ErrNoResponders)
				said := logged.String()
				switch {
				case admitted && one.Refused != "":
					t.Fatalf("admitted, want refused with %q", one.Refused)
				case admitted, one.Refused != "" && strings.Contains(said, one.Refused):
					return
				case time.Now().After(deadline):
					t.Fatalf("want %q; the log says:\n%s", one.Refused, said)
				}
			}
		})
	}
}

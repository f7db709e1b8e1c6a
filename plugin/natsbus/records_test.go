package natsbus

import (
	"strings"
	"testing"
	"time"
)

const (
	streamInfo   = `{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"S","subjects":["s.>"]},"created":"2026-01-01T00:00:00Z","state":{"messages":0,"last_seq":0}}`
	consumerInfo = `{"type":"io.nats.jetstream.api.v1.consumer_create_response","stream_name":"S","name":"c","config":{"filter_subject":"s.>"}}`
	creating     = "$JS.API.CONSUMER.CREATE.S"
)

func TestAFollowerAsksAgainWhereItsServerWasLostAndNoneLeadsYet(t *testing.T) {
	server, bus := newStandIn(t)
	server.now(func() {
		server.answers = map[string]string{"$JS.API.STREAM.INFO.S": streamInfo, creating: consumerInfo, "$JS.API.CONSUMER.MSG.NEXT": ""}
	})
	go bus.Follow(t.Context(), "S", "s.>", time.Now(), func(Record) {})
	asked := func() int {
		server.mu.Lock()
		defer server.mu.Unlock()
		times := 0
		for _, subject := range server.heard {
			if strings.HasPrefix(subject, creating) {
				times++
			}
		}
		return times
	}
	within := func(limit time.Duration, times int) {
		t.Helper()
		for deadline := time.Now().Add(limit); asked() < times; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("asked %d times for a consumer, want %d", asked(), times)
			}
		}
	}
	within(20*time.Second, 1)

	// Requests that JetStream's servers get while they choose a leader are never answered.
	server.now(func() {
		server.answers[creating] = ""
		server.heard = nil
	})
	server.drop("")

	within(8*time.Second, 3)
}

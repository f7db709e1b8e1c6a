// Command follow prints outcomes as they come, with the login viewer: docs/consumers.md.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.CustomInboxPrefix("_INBOX.makeway.cli"))
	if err != nil {
		log.Fatal(err)
	}
	js, _ := jetstream.NewWithAPIPrefix(nc, "makeway.v1.api")
	outcomes, err := js.Stream(context.Background(), "MAKEWAY_OUTCOMES")
	if err != nil {
		log.Fatal(err)
	}
	for sequence := uint64(1); ; {
		stored, err := outcomes.GetMsg(context.Background(), sequence, jetstream.WithGetMsgSubject(">"))
		if err != nil {
			time.Sleep(time.Second) // none so far
			continue
		}
		sequence = stored.Sequence + 1
		var event struct {
			Data struct {
				OrderID, Result string
				Victims         []any
			}
		}
		_ = json.Unmarshal(stored.Data, &event)
		fmt.Println(event.Data.OrderID, event.Data.Result, len(event.Data.Victims), "victims")
	}
}

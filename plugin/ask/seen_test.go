package ask

import (
	"encoding/json"
	"testing"
	"time"

	"makeway.dev/makeway/plugin/natsbus"
	"makeway.dev/makeway/plugin/wire"
)

func TestHowFarTheOutcomesAreReadNamesTheirStreamAsNATSDoes(t *testing.T) {
	for _, created := range []string{"2026-01-30T08:15:00.123456789Z", "2026-01-30T08:15:00.12Z", "2026-01-30T08:15:00Z", "2026-01-30T10:15:00.5+02:00"} {
		var read time.Time
		if err := json.Unmarshal([]byte(`"`+created+`"`), &read); err != nil {
			t.Fatal(err)
		}
		seen := NewSeen()

		seen.TakeOutcome(natsbus.Record{Stream: read, Sequence: 512})

		if got, want := *seen.Outcomes(), (wire.StreamPosition{Created: created, Sequence: 512}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestTheLastOutcomeThatWasReadCountsAlsoWhereItsSequenceIsLower(t *testing.T) {
	seen, before := NewSeen(), time.Unix(1, 0).UTC()
	if seen.Outcomes() != nil {
		t.Error("none was read")
	}
	seen.TakeOutcome(natsbus.Record{Stream: before, Sequence: 512})

	for _, one := range []struct {
		made     time.Time
		sequence uint64
	}{{before, 500}, {before.Add(time.Hour), 1}} {
		seen.TakeOutcome(natsbus.Record{Stream: one.made, Sequence: one.sequence})

		if got := seen.Outcomes(); got.Sequence != int64(one.sequence) || got.Created != one.made.Format(time.RFC3339Nano) {
			t.Errorf("%+v, want %d of the stream of %s", got, one.sequence, one.made)
		}
	}
}

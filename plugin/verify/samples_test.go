package verify

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestAPodIsTriedInFullForSomeTime(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	s := NewSamples()
	s.Missed(fake.Now(), "p")
	if !s.Full(fake.Now(), "p") || s.Full(fake.Now(), "q") {
		t.Error("not this pod alone")
	}

	fake.SetTime(fake.Now().Add(fullFor))

	if s.Full(fake.Now(), "p") {
		t.Error("without end")
	}
}

func TestOneSampleAMinuteIsDue(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	s := NewSamples()
	s.Due(fake.Now())
	fake.SetTime(fake.Now().Add(sampleEvery))
	if !s.Due(fake.Now()) || s.Due(fake.Now()) {
		t.Error("not one a minute")
	}
}

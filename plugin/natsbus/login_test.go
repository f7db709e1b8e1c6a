package natsbus

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"
)

// newSeed is the seed of a new user, and its public key.
func newSeed(t *testing.T) (string, string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return string(seed), public
}

func TestARenewedNkeyIsUsedByTheNextConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nats.nk")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seed, public := newSeed(t)
	write("half of a se")
	server, bus := newStandInWith(t, nil, Options{NkeySeedFile: file})
	server.now(func() { server.login = fmt.Sprintf(`"nkey":%q`, public) })
	write(seed + "\n")
	answered(t, bus)

	renewed, other := newSeed(t)
	write(renewed)
	server.now(func() { server.login = fmt.Sprintf(`"nkey":%q`, other) })
	server.drop("")

	answered(t, bus)
}

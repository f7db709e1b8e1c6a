package wire

import (
	"crypto/rand"
	"time"
)

// PodRef is one incarnation of a pod or a PodGroup. Only UID identifies.
type PodRef struct{ Namespace, Name, UID string }

// crockford is the lower-case base 32 alphabet of ULIDs.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// NewOrderID makes an order id: "ord-" and 26 characters that sort by time and are random after
// the millisecond.
func NewOrderID(now time.Time) string { return "ord-" + newULID(now) }

// NewRequestID makes the id of one plan request.
func NewRequestID(now time.Time) string { return "req-" + newULID(now) }

// newULID makes 48 bits of milliseconds and 80 random bits, in base 32.
func newULID(now time.Time) string {
	var raw [16]byte
	milliseconds := uint64(now.UnixMilli())
	for i := range 6 {
		raw[i] = byte(milliseconds >> (8 * (5 - i)))
	}
	// crypto/rand.Read never fails; it ends the process where there is no randomness.
	_, _ = rand.Read(raw[6:])

	var out [26]byte
	var buffer uint32
	bits := 2 // 26 characters hold 130 bits: two leading zero bits
	at := 0
	for _, b := range raw {
		buffer = buffer<<8 | uint32(b)
		bits += 8
		for bits >= 5 {
			bits -= 5
			out[at] = crockford[(buffer>>bits)&31]
			at++
		}
	}
	return string(out[:])
}

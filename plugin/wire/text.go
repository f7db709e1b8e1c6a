package wire

import "strings"

// MostOfMessage bounds, in bytes, what is taken of a refusal's text: it goes into the pod's status and Events.
const MostOfMessage = 1024

// Beginning cuts a text to so many bytes, between characters.
func Beginning(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}

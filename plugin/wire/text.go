package wire

import "strings"

// Beginning cuts a text to so many bytes, between characters.
func Beginning(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}
